"""Requests over HTTP to the broker, by the `requests` library."""

from __future__ import annotations

import requests

from tests.hangbench.queues.broker import ports
from tests.hangbench.queues.place import Place


class Http:
    """A queue of the broker, asked by one session."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._session = requests.Session()
        self._url = f"http://127.0.0.1:{ports(place.directory)[0]}"

    def put(self) -> None:
        """Add something once there is room."""
        self._post(f"put/{self._place.key}/{self._place.depth}")

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something."""
        seconds = -1 if timeout is None else timeout
        return self._post(f"get/{self._place.key}/{self._place.depth}/{seconds}") == 200

    def close(self) -> None:
        """Close the session's connection."""
        self._session.close()

    def _post(self, path: str) -> int:
        answer = self._session.post(f"{self._url}/{path}", timeout=None)
        answer.raise_for_status()
        return answer.status_code


def open_queue(place: Place) -> Http:
    """Begin a session."""
    return Http(place)
