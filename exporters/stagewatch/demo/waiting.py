"""Waits for something that a daemon will do some time."""

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


def wait_for(condition: Condition[T], what: str, limit: float = 60.0, pause: float = 0.1) -> T:
    """The condition's first true value.  Raises `TookTooLong` after `limit` seconds.

    It is looked at again after a fiftieth of the seconds waited so far or four times what a look
    takes, 0.02 at least and `pause` at most, since looking itself keeps a small machine busy.
    """
    began = looked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        if now - began > limit:
            raise TookTooLong(f"did not happen within {limit:g} s: {what}")
        time.sleep(min(max((now - began) / 50, 4 * (now - looked), 0.02), pause))
        looked = time.monotonic()
    return value
