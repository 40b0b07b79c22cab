"""Queues between ranks, over what real programs use: pipes, sockets, semaphores, files.

`open_queue` opens one; each file beside this has one way, with functions of its own names, so that
a stack tells how a rank waits.  `place.py` has what they know of a queue, `broker.py` the process
that keeps those that ranks reach over a network.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from tests.hangbench.queues.place import Place

BROKERED = frozenset({"unix", "tcp", "http", "zmq", "asyncio"})
"""Ways that need the broker."""
VIAS = BROKERED | {"pipe", "mp_queue", "semaphore", "lock_file", "rendezvous", "thread", "ray"}


class Queue(Protocol):
    """What ranks do with a queue."""

    def put(self) -> None:
        """Add something once there is room."""

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something; False where nothing came in so many seconds."""

    def close(self) -> None:
        """Let go of it."""


def open_queue(via: str, place: Place) -> Queue:
    """Open the queue at a place, and make it where nobody has done so before."""
    module = import_module(f"tests.hangbench.queues.via_{via}")
    opened: Callable[[Place], Queue] = module.open_queue
    return opened(place)
