"""Two semaphores in shared memory and no descriptor: what is there, and the room that is left."""

from __future__ import annotations

from tests.hangbench.queues.place import Place, semaphore


class Semaphores:
    """A counter of each, as of a ring buffer in shared memory."""

    def __init__(self, place: Place) -> None:
        self._room = semaphore(place, "room", place.depth)
        self._there = semaphore(place, "there", 0)

    def put(self) -> None:
        """Add something once there is room."""
        self._acquire_room()
        self._there.release()

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        if not self._acquire_item(timeout):
            return False
        self._room.release()
        return True

    def _acquire_room(self) -> None:
        self._room.acquire()

    def _acquire_item(self, timeout: float | None) -> bool:
        acquired: bool = self._there.acquire(True, timeout)
        return acquired

    def close(self) -> None:
        """Nothing is open."""


def open_queue(place: Place) -> Semaphores:
    """Open or make it."""
    return Semaphores(place)
