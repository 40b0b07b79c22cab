"""A socket to the broker, over TCP or within the node, in which a rank waits for its answer."""

from __future__ import annotations

import socket

from tests.hangbench.queues.broker import get_request, port, put_request, unix_socket
from tests.hangbench.queues.place import Place


class Asked:
    """A queue with a broker, asked over a connection of its own."""

    def __init__(self, place: Place, connection: socket.socket) -> None:
        self._place, self._connection = place, connection

    def put(self) -> None:
        """Add something once there is room."""
        self._ask(put_request(self._place))

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        return self._ask(get_request(self._place, timeout)) == b"ok\n"

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
    return Asked(place, socket.create_connection(("127.0.0.1", port(place))))


def open_unix(place: Place) -> Asked:
    """Connect within the node."""
    port(place)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(unix_socket(place.directory, place.index))
    return Asked(place, connection)
