"""`/metrics`: joins the texts that the collectors have left; a scrape collects nothing.

A scrape makes only the agent's own health and process figures, from memory and /proc/self.
"""

from __future__ import annotations

import platform
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import parse_qs

from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

import stagewatch
from stagewatch.core.exposition import Metric, Samples, render
from stagewatch.core.runner import Runner
from stagewatch.web.message import Refused, Request, Response

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

BUILD_INFO = Metric(
    "stagewatch_build_info",
    "gauge",
    "1, with the versions of stagewatch and of the Python that runs it.",
    ("version", "python"),
)


class MetricsPage:
    """Answers a scrape."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._process = CollectorRegistry(auto_describe=False)
        self._process.register(ProcessCollector(registry=None))
        build = Samples()
        build.add(BUILD_INFO, 1, stagewatch.__version__, platform.python_version())
        self._build = render(build)

    def __call__(self, request: Request) -> Response:
        """The metrics in the format the client prefers.

        `collect[]` and `exclude[]` choose collectors by name, as in node_exporter.
        """
        names = _chosen(request.query, self._runner.jobs)
        openmetrics = _prefers_openmetrics(request.headers.get("accept", ""))
        body = self._join(names, openmetrics=openmetrics)
        content_type = OPENMETRICS if openmetrics else TEXT
        return Response(HTTPStatus.OK, content_type, body, {"Vary": "Accept"})

    def _join(self, names: Collection[str], *, openmetrics: bool) -> bytes:
        fresh = [job.fresh() for name, job in self._runner.jobs.items() if name in names]
        parts = [
            self._build,
            render(_of_collectors(self._runner.health(), names)),
            *[snapshot.rendered for snapshot in fresh if snapshot is not None],
        ]
        if openmetrics:
            own = generate_openmetrics(self._process)  # type: ignore[no-untyped-call]
            return b"".join([*[part.openmetrics for part in parts], own])  # it ends in # EOF
        return b"".join([*[part.text for part in parts], generate_latest(self._process)])


def _chosen(query: str, names: Collection[str]) -> Collection[str]:
    """The collectors that a scrape's query asks for.

    Raises `Refused` for a name that no collector has, and for both parameters at once.
    """
    if not query:
        return names
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=256)
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, "too many parameters") from error
    collect, exclude = fields.get("collect[]", []), fields.get("exclude[]", [])
    if collect and exclude:
        raise Refused(HTTPStatus.BAD_REQUEST, "collect[] and exclude[] cannot be given together")
    for name in (*collect, *exclude):
        if name not in names:
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                f"no collector {name[:64]!r} here; there are: {', '.join(names)}",
            )
    if collect:
        return [name for name in names if name in collect]
    return [name for name in names if name not in exclude]


def _of_collectors(health: Samples, names: Collection[str]) -> Samples:
    """The health of the named collectors; its first label is the collector's name."""
    out = Samples()
    for metric, family in health.families.items():
        for labels, value in family.items():
            if labels[0] in names:
                out.families.setdefault(metric, {})[labels] = value
    return out


def _prefers_openmetrics(accept: str) -> bool:
    try:
        content_type = choose_encoder(accept)[1]
    except (ValueError, TypeError):  # a version that is not a number
        return False
    return content_type.startswith("application/openmetrics-text")
