"""`/metrics`: joins the texts that the collectors have left; a scrape collects nothing.

A scrape makes only the agent's own health and process figures, from memory and /proc/self.
"""

from __future__ import annotations

import platform
from http import HTTPStatus

from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

import stagewatch
from stagewatch.core.exposition import Metric, Samples, render
from stagewatch.core.runner import Runner
from stagewatch.web.message import Request, Response

TEXT = "text/plain; version=0.0.4; charset=utf-8"

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

    def __call__(self, _: Request) -> Response:
        """All metrics."""
        fresh = [job.fresh() for job in self._runner.jobs.values()]
        parts = [
            self._build,
            render(self._runner.health()),
            *[snapshot.text for snapshot in fresh if snapshot is not None],
            generate_latest(self._process),
        ]
        return Response(HTTPStatus.OK, TEXT, b"".join(parts))
