"""A pipe with a lock of its readers and a semaphore for its bound, as below
`multiprocessing.Queue`: all who use it hold both of its ends."""

from __future__ import annotations

import os
import select

from tests.hangbench.queues.place import Place, pipe, semaphore


class Pipe:
    """One byte for each thing in the queue."""

    def __init__(self, place: Place) -> None:
        self._reader, self._writer = pipe(place)
        self._room = semaphore(place, "room", place.depth)
        self._lock = semaphore(place, "lock", 1)

    def put(self) -> None:
        """Add something once there is room."""
        self._room.acquire()
        os.write(self._writer, b"!")

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something, while no other does so."""
        if not self._lock.acquire(True, timeout):
            return False
        try:
            if timeout is not None and not select.select([self._reader], [], [], timeout)[0]:
                return False
            os.read(self._reader, 1)
        finally:
            self._lock.release()
        self._room.release()
        return True

    def close(self) -> None:
        """Let go of both ends."""
        os.close(self._reader)
        os.close(self._writer)


def open_queue(place: Place) -> Pipe:
    """Open or make it."""
    return Pipe(place)
