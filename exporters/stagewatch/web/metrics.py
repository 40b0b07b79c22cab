"""`/metrics`: joins the texts that the collectors have left; a scrape collects nothing.

A scrape makes only the agent's own health, from memory, and at most once a second its process
figures, from /proc/self.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

import stagewatch
from stagewatch.core.exposition import Renderer, Samples, gauge, render
from stagewatch.core.runner import Runner
from stagewatch.web.message import Request, Response

TEXT = "text/plain; version=0.0.4; charset=utf-8"

BUILD_INFO = gauge(
    "stagewatch_build_info",
    "1, with the versions of stagewatch and of the Python that runs it.",
    ("version", "python"),
)

PROCESS_SECONDS = 1.0
"""How old the process figures may be.

To read them takes 20 system calls.  Most let go of the interpreter's lock, and each time a scrape
may have to wait for a collector that computes.
"""


class MetricsPage:
    """Answers a scrape."""

    def __init__(self, runner: Runner, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._runner = runner
        self._clock = clock
        self._health = Renderer()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ProcessCollector(registry=None))
        self._process = (-math.inf, b"")
        """When the process figures were read, by the clock, and their text."""
        build = Samples()
        build.add(BUILD_INFO, 1, stagewatch.__version__, platform.python_version())
        self._build = render(build)

    def __call__(self, _: Request) -> Response:
        """All metrics."""
        fresh = [job.fresh() for job in self._runner.jobs.values()]
        parts = [
            self._build,
            self._health.render(self._runner.health()),
            *[snapshot.text for snapshot in fresh if snapshot is not None],
            self._process_figures(),
        ]
        return Response(HTTPStatus.OK, TEXT, b"".join(parts))

    def _process_figures(self) -> bytes:
        read, text = self._process
        now = self._clock()
        if now - read >= PROCESS_SECONDS:
            text = generate_latest(self._registry)
            self._process = (now, text)
        return text
