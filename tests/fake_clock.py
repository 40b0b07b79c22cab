"""Time under a test's control."""

from __future__ import annotations


class Clock:
    """A clock that stands still until a test turns `now`, in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
