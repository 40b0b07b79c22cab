"""Waiting for a condition; no test asserts how long something took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, limit: float = 60.0) -> T:
    """The condition's first true value; fails the test after a generous limit."""
    end = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {limit:g} s: {what}")
        time.sleep(0.02)
    return value
