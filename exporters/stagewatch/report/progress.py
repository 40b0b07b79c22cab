"""Shows the progress of long work on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

WIDTH = 24


class Progress:
    """A line on standard error that is drawn over and over, and gone at the end."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._total = 0
        self._done = 0

    def expect(self, steps: int) -> None:
        """Add steps that are to come."""
        self._total += steps

    def step(self, what: str) -> None:
        """Begin the next step."""
        self._done += 1
        if not self._live:
            return
        filled = WIDTH * min(self._done, self._total) // max(self._total, 1)
        bar = "█" * filled + "░" * (WIDTH - filled)
        self._stream.write(f"\r\033[K{bar} {self._done}/{self._total} {what[:48]}")
        self._stream.flush()

    def close(self) -> None:
        """Clear the line."""
        if self._live:
            self._stream.write("\r\033[K")
            self._stream.flush()
