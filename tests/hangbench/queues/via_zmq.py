"""ZeroMQ to the broker: a rank waits for a thread of the library, and that for the network."""

from __future__ import annotations

import zmq

from tests.hangbench.queues.broker import get_request, port, put_request
from tests.hangbench.queues.place import Place


class Zmq:
    """A queue with a broker, asked by a request socket."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://127.0.0.1:{port(place)}")

    def put(self) -> None:
        """Add something once there is room."""
        self._ask(put_request(self._place))

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        return self._ask(get_request(self._place, timeout)) == "ok"

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(self, request: str) -> str:
        self._socket.send_string(request)
        return self._socket.recv_string()


def open_queue(place: Place) -> Zmq:
    """Connect."""
    return Zmq(place)
