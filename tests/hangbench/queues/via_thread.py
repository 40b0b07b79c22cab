"""A `queue.Queue` between the threads of one rank; other ranks have others of that name."""

from __future__ import annotations

import queue

from tests.hangbench.queues.place import Place

_OPEN: dict[Place, queue.Queue[None]] = {}


class BetweenThreads:
    """One queue of this process."""

    def __init__(self, place: Place) -> None:
        self._queue = _OPEN.setdefault(place, queue.Queue(place.depth))

    def put(self) -> None:
        """Add something once there is room."""
        self._queue.put(None)

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        try:
            self._queue.get(timeout=timeout)
        except queue.Empty:
            return False
        return True

    def close(self) -> None:
        """Nothing is open."""


def open_queue(place: Place) -> BetweenThreads:
    """Open or make it."""
    return BetweenThreads(place)
