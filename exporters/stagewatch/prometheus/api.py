"""Queries a Prometheus-compatible HTTP API.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.auth import AuthBase
from requests.utils import get_netrc_auth

from stagewatch.core.errors import ConfigError, SourceError
from stagewatch.prometheus.failure import why_unanswered
from stagewatch.prometheus.options import PrometheusOptions

MAX_POINTS = 2000
"""The most points of one range query; servers refuse more than 11,000 (Prometheus) or 30,000."""

MAX_RAW_SECONDS = 3600.0
"""The longest time of one query for raw samples."""


@dataclass(frozen=True, slots=True)
class Series:
    """One element of an instant vector."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Track:
    """One series over time: (Unix time, value), in order, without those that are NaN."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Alert:
    """One active alert."""

    name: str
    state: str
    """`pending` or `firing`."""
    labels: dict[str, str]
    annotations: dict[str, str]


class PrometheusApi:
    """A server at a base URL.  Its methods raise `SourceError` with a line to act on."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        authorization: str = "",
        verify: bool | str | None = None,
        certificate: str | tuple[str, str] | None = None,
    ) -> None:
        """`authorization` is the value of that header, such as `Bearer ...`; `verify` and
        `certificate` are what requests takes.

        Raises `ConfigError` where `url` is none.
        """
        self._where = _without_user(url)
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._session = session = requests.Session()
        # The environment and netrc are read here, and not for each of thousands of queries.
        self._given = session.merge_environment_settings(url, {}, None, verify, certificate)
        session.auth = _Authorization(authorization) if authorization else get_netrc_auth(url)
        session.trust_env = False

    @classmethod
    def of(cls, options: PrometheusOptions) -> PrometheusApi:
        """The server that the options name.  Raises `ConfigError` if a file cannot be used."""
        options.context()  # names the file, which requests would not
        if options.insecure:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        return cls(
            options.url,
            timeout=options.timeout,
            authorization=options.authorization(),
            verify=options.verify,
            certificate=options.certificate,
        )

    def ready(self) -> bool:
        """Whether the server says that it is ready to answer."""
        try:
            return self._fetch("/-/ready").ok
        except requests.RequestException:
            return False

    def query(self, expression: str, at: float | None = None) -> list[Series]:
        """An instant query that yields a vector, as of now or of a Unix time."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        data = self._get("query", {"query": expression, **when})
        if data.get("resultType") != "vector":
            raise SourceError(f"{expression!r} gave a {data.get('resultType')}, not a vector")
        return [Series(item["metric"], float(item["value"][1])) for item in data["result"]]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Track]:
        """The values at `start`, `start + step` and so on, up to `end`; asked in pieces.

        `nocache` keeps VictoriaMetrics from moving the times; others ignore it.
        """
        pieces: list[Any] = []
        at = start
        while at <= end:
            until = min(end, at + (MAX_POINTS - 1) * step)
            asked = {"start": f"{at:.3f}", "end": f"{until:.3f}", "step": f"{step:g}"}
            data = self._get("query_range", {"query": expression, "nocache": "1", **asked})
            pieces += data["result"]
            at += MAX_POINTS * step
        return _joined(pieces)

    def samples(self, selector: str, start: float, end: float) -> list[Track]:
        """The stored samples of series, with their own times."""
        pieces: list[Any] = []
        at = start
        while at < end:
            until = min(end, at + MAX_RAW_SECONDS)
            window = f"{selector}[{math.ceil((until - at) * 1000)}ms]"
            data = self._get("query", {"query": window, "time": f"{until:.3f}"})
            if data.get("resultType") != "matrix":
                raise SourceError(f"{window!r} gave a {data.get('resultType')}, not a matrix")
            pieces += data["result"]
            at = until
        return _joined(pieces)

    def alerts(self) -> list[Alert]:
        """All pending and firing alerts."""
        return [
            Alert(item["labels"]["alertname"], item["state"], item["labels"], item["annotations"])
            for item in self._get("alerts", {})["alerts"]
        ]

    def targets(self) -> list[tuple[dict[str, str], str]]:
        """Labels and URL of each target that the server scrapes now."""
        data = self._get("targets", {"state": "active"})
        return [(target["labels"], target["scrapeUrl"]) for target in data["activeTargets"]]

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _fetch(self, path: str, parameters: dict[str, str] | None = None) -> requests.Response:
        url = self._url + path
        return self._session.get(url, params=parameters, timeout=self._timeout, **self._given)

    def _get(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        try:
            answer = self._fetch(f"/api/v1/{path}", parameters)
        except requests.RequestException as error:
            why = why_unanswered(error, self._timeout)
            raise SourceError(f"{self._where} does not answer: {why}") from error
        try:
            body = answer.json()
            if body["status"] == "success":
                found: dict[str, Any] = body["data"]
                return found
            problem = body["error"]
        except (requests.JSONDecodeError, KeyError, TypeError) as error:
            said = f"HTTP status {answer.status_code} {answer.reason}"
            raise SourceError(f"{self._where} is no Prometheus API: {said}") from error
        raise SourceError(f"{self._where}: {problem}")


class _Authorization(AuthBase):
    """Sends one header and ignores netrc files; after a redirect, it does not send it to another
    host."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._value
        return request


def _without_user(url: str) -> str:
    """The URL without user and password, to be shown.  Raises `ConfigError` if it is no HTTP
    URL."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises where it is no number
    except ValueError:
        known = False
    if not known:
        raise ConfigError(
            f"{url!r} is no URL of a Prometheus server: it is given as http://HOST:9090 or "
            "https://HOST"
        )
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def _joined(pieces: list[Any]) -> list[Track]:
    """The series with their pieces joined; a sample on the border of two pieces counts once."""
    found: dict[frozenset[tuple[str, str]], tuple[dict[str, str], dict[float, float]]] = {}
    for piece in pieces:
        labels: dict[str, str] = piece["metric"]
        _, samples = found.setdefault(frozenset(labels.items()), (labels, {}))
        samples.update(
            (float(time), number)
            for time, value in piece["values"]
            if not math.isnan(number := float(value))
        )
    return [Track(labels, sorted(samples.items())) for labels, samples in found.values() if samples]
