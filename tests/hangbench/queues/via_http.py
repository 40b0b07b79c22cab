"""Requests over HTTP to the broker, by the `requests` library."""

from __future__ import annotations

import requests

from tests.hangbench.queues.broker import get_request, port, put_request
from tests.hangbench.queues.place import Place


class Http:
    """A queue with a broker, asked by one session."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._session = requests.Session()
        self._url = f"http://127.0.0.1:{port(place)}"

    def put(self) -> None:
        """Add something once there is room."""
        self._post(put_request(self._place))

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        return self._post(get_request(self._place, timeout)) == 200

    def close(self) -> None:
        """Close the session's connection."""
        self._session.close()

    def _post(self, request: str) -> int:
        path = request.replace(" ", "/")
        answer = self._session.post(f"{self._url}/{path}", timeout=None)
        answer.raise_for_status()
        return answer.status_code


def open_queue(place: Place) -> Http:
    """Begin a session."""
    return Http(place)
