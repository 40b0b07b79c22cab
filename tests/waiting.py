"""Waiting for a condition; no test asserts how long something took."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TypeVar

from stagewatch.demo import waiting

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], what: str, limit: float = 60.0, *, pause: float = 0.5
) -> T:
    """The condition's first true value; fails the test after a generous limit."""
    try:
        return waiting.wait_for(condition, what, limit, pause)
    except waiting.TookTooLong as error:
        raise AssertionError(str(error)) from None


def becomes(condition: Callable[[], object], limit: float, pause: float = 0.5) -> bool:
    """Whether the condition becomes true within so many seconds."""
    try:
        waiting.wait_for(lambda: bool(condition()), "", limit, pause)
    except waiting.TookTooLong:
        return False
    return True


def answers(url: str) -> bool:
    """Whether a page is served, by a server that may still be starting."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()  # it holds the answer
        return False
    except OSError:
        return False
