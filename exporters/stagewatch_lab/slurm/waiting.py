"""Waiting for something that a daemon will do in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from stagewatch.core.errors import StagewatchError

T = TypeVar("T")


class TookTooLong(StagewatchError):
    """A condition that did not come true in a generous time."""


def wait_for(
    condition: Callable[[], T | Literal[False] | None],
    what: str,
    limit: float = 60.0,
    pause: float = 0.02,
) -> T:
    """The condition's first true value, which is looked for every `pause` seconds.

    Raises `TookTooLong` after `limit` seconds.
    """
    end = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > end:
            raise TookTooLong(f"did not happen within {limit:g} s: {what}")
        time.sleep(pause)
    return value
