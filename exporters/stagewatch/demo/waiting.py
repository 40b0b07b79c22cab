"""Waits until a condition is true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from stagewatch.core.errors import StagewatchError

T = TypeVar("T")
Condition = Callable[[], T | Literal[False] | None]
"""Has a value once it is true."""


class TookTooLong(StagewatchError):
    """A condition has not become true in time."""


def wait_for(condition: Condition[T], what: str, limit: float = 60.0, pause: float = 0.5) -> T:
    """The condition's first true value.  Raises `TookTooLong` after `limit` seconds.

    The next check is after a twentieth of the seconds waited so far or nine times the duration of a
    check, at least 0.02 s and at most `pause`, since checks keep a small machine busy.
    """
    began = looked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        if now - began > limit:
            raise TookTooLong(f"did not happen within {limit:g} s: {what}")
        time.sleep(min(max((now - began) / 20, 9 * (now - looked), 0.02), pause))
        looked = time.monotonic()
    return value
