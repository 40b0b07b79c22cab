"""A number in a file, which whoever has locked it reads and writes: others wait for the lock, and
look again and again for what they want to find."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.hangbench.queues.place import Place

LOOK_SECONDS = 0.05


class LockFile:
    """How many are in the queue, in a file."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def put(self) -> None:
        """Add something once there is room."""
        depth = self._place.depth
        while not self._change(lambda waiting: waiting + (waiting < depth)):
            _wait_to_look_again()

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._change(lambda waiting: waiting - (waiting > 0)):
            if end is not None and time.monotonic() >= end:
                return False
            _wait_to_look_again()
        return True

    def close(self) -> None:
        """Nothing is open."""

    def _change(self, change: Callable[[int], int]) -> bool:
        with self._place.locked("count") as path:
            before = int(path.read_text() or 0)
            after = change(before)
            path.write_text(str(after))
        return after != before


def _wait_to_look_again() -> None:
    time.sleep(LOOK_SECONDS)


def open_queue(place: Place) -> LockFile:
    """Open or make it."""
    return LockFile(place)
