"""`multiprocessing.Queue` itself, put together from its parts in each process, as it is where a
spawned child unpickles it."""

from __future__ import annotations

import queue
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from multiprocessing.synchronize import BoundedSemaphore, Lock
from typing import Any

from tests.hangbench.queues.place import Place, pipe, semaphore_state


class MpQueue:
    """Bytes through a `multiprocessing.Queue`, with the thread that feeds its pipe."""

    def __init__(self, place: Place) -> None:
        reader, writer = pipe(place)
        reading, writing = (_rebuilt(Lock, place, name, 1) for name in ("reading", "writing"))
        room = _rebuilt(BoundedSemaphore, place, "room", place.depth)
        self._queue: Any = Queue.__new__(Queue)
        ends = Connection(reader, writable=False), Connection(writer, readable=False)
        # What its __getstate__ gives; the last is the pid of whoever made it.
        self._queue.__setstate__((False, place.depth, *ends, reading, writing, room, 0))

    def put(self) -> None:
        """Add something once there is room."""
        self._queue.put(b"!")

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        try:
            self._queue.get(timeout=timeout)
        except queue.Empty:
            return False
        return True

    def close(self) -> None:
        """Let go of its reader, and of its writer once all has been written."""
        self._queue.close()


def _rebuilt(kind: Any, place: Place, what: str, value: int) -> Any:
    made = kind.__new__(kind)
    made.__setstate__(semaphore_state(place, what, value))
    return made


def open_queue(place: Place) -> MpQueue:
    """Open or make it."""
    return MpQueue(place)
