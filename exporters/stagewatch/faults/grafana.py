"""Regions in Grafana for injected faults, through its annotations API.

https://grafana.com/docs/grafana/latest/developers/http_api/annotations/
"""

from __future__ import annotations

from typing import Any

import requests

from stagewatch.core.errors import SourceError
from stagewatch.faults.markers import Marker

TAG = "stagewatch"


class Refused(SourceError):
    """Grafana will not take this as things are: asking again at once is of no use."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"Grafana answered {status}: {text[:200]}")
        self.status = status


class Grafana:
    """A Grafana at a base URL, with the token of a service account that may annotate.

    Methods raise `Refused` for what will never be taken, and `SourceError` for what may be later.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def open(self, marker: Marker) -> int:
        """Post the fault as an annotation of the organisation; returns its id."""
        body = {
            "time": round(marker.start * 1000),
            "timeEnd": round((marker.end or marker.start) * 1000),
            "tags": tags(marker),
            "text": text(marker),
        }
        answer = self._call("POST", "/api/annotations", body)
        try:
            return int(answer["id"])
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"Grafana gave no id for the annotation: {answer!r}") from error

    def close(self, annotation: int, end: float) -> None:
        """Give an annotation its end, which makes it a region."""
        self._call("PATCH", f"/api/annotations/{annotation}", {"timeEnd": round(end * 1000)})

    def find(self, marker: Marker) -> int | None:
        """The annotation that an earlier try has left, if its answer was lost on the way."""
        query: dict[str, Any] = {
            "tags": [TAG, f"id:{marker.id}"],
            "from": round(marker.start * 1000) - 1,
            "to": round(marker.start * 1000) + 1,
        }
        answer = self._call("GET", "/api/annotations", query)
        ids = [each.get("id") for each in answer] if isinstance(answer, list) else []
        return ids[0] if ids and isinstance(ids[0], int) else None

    def _call(self, method: str, path: str, content: dict[str, Any]) -> Any:
        where = {"params" if method == "GET" else "json": content}
        try:
            answer = self._session.request(
                method,
                f"{self._url}{path}",
                timeout=self._timeout,
                allow_redirects=False,
                **where,  # type: ignore[arg-type]
            )
        except requests.RequestException as error:
            raise SourceError(f"Grafana at {self._url}: {error}") from error
        if answer.status_code in (408, 425, 429) or answer.status_code >= 500:
            raise SourceError(f"Grafana answered {answer.status_code}, to be tried again")
        if not answer.ok or answer.is_redirect:
            raise Refused(answer.status_code, answer.text)
        try:
            return answer.json()
        except ValueError as error:
            raise SourceError("Grafana's answer is not JSON; is that URL a Grafana?") from error


def tags(marker: Marker) -> list[str]:
    """What the annotation can be found and filtered by."""
    pairs = {
        "fault": marker.fault_type,
        "target": marker.target_worker,
        "scenario": marker.scenario,
    }
    named = [f"{name}:{value}" for name, value in pairs.items() if value]
    return [TAG, f"id:{marker.id}", *named]


def text(marker: Marker) -> str:
    """What stands in the annotation."""
    where = f" on {marker.target_worker}" if marker.target_worker else ""
    stage = marker.expected_failure_stage
    surfaces = f", expected to surface in {stage}" if stage else ""
    return f"Injected: {marker.fault_type}{where}{surfaces}"
