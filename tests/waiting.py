"""Waiting for a condition; no test asserts how long something took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], what: str, limit: float = 60.0, *, pause: float = 0.1
) -> T:
    """The condition's first true value; fails the test after a generous limit.

    It is looked at again after a fiftieth of the seconds waited so far, 0.02 at least and `pause`
    at most, since looking itself keeps a small machine busy.
    """
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > limit:
            raise AssertionError(f"did not happen within {limit:g} s: {what}")
        time.sleep(min(max(waited / 50, 0.02), pause))
    return value
