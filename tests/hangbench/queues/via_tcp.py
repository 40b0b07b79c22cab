"""A socket to the broker, over TCP or within the node, in which a rank waits for its answer."""

from __future__ import annotations

import socket

from tests.hangbench.queues.broker import UNIX, ports
from tests.hangbench.queues.place import Place


class Asked:
    """A queue of the broker, asked over a connection of its own."""

    def __init__(self, place: Place, connection: socket.socket) -> None:
        self._place, self._connection = place, connection

    def put(self) -> None:
        """Add something once there is room."""
        self._ask(f"put {self._place.key} {self._place.depth}")

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        seconds = -1 if timeout is None else timeout
        return self._ask(f"get {self._place.key} {self._place.depth} {seconds}") == b"ok\n"

    def close(self) -> None:
        """Leave the broker."""
        self._connection.close()

    def _ask(self, request: str) -> bytes:
        self._connection.sendall(f"{request}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self._receive_answer()
        return answer

    def _receive_answer(self) -> bytes:
        part = self._connection.recv(16)
        if not part:
            raise ConnectionError("the broker has gone")
        return part


def open_queue(place: Place) -> Asked:
    """Connect."""
    return Asked(place, socket.create_connection(("127.0.0.1", ports(place.directory)[0])))


def open_unix(place: Place) -> Asked:
    """Connect within the node."""
    ports(place.directory)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(place.directory / UNIX))
    return Asked(place, connection)
