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
        self._acquire_room()
        os.write(self._writer, b"!")

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something, while no other does so."""
        if not self._acquire_reading(timeout):
            return False
        try:
            if timeout is not None and not select.select([self._reader], [], [], timeout)[0]:
                return False
            self._read_pipe()
        finally:
            self._lock.release()
        self._room.release()
        return True

    def _acquire_room(self) -> None:
        self._room.acquire()

    def _acquire_reading(self, timeout: float | None) -> bool:
        acquired: bool = self._lock.acquire(True, timeout)
        return acquired

    def _read_pipe(self) -> None:
        os.read(self._reader, 1)

    def close(self) -> None:
        """Let go of both ends."""
        os.close(self._reader)
        os.close(self._writer)


def open_queue(place: Place) -> Pipe:
    """Open or make it."""
    return Pipe(place)
