"""`/metrics`: joins the texts that the collectors have left; a scrape collects nothing.

Each text is compressed for the first scraper that takes gzip, and serves all others.

A scrape makes only the agent's own health, from memory.  Each system call on the way may let go of
the interpreter's lock, and then wait for collectors that compute: to list the process's descriptors
took tens of milliseconds beside 256 full records.  Nor does a scrape open a file: where this
process has no descriptor left, that would fail, and the page with it.
"""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
import weakref
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus

import stagewatch
from stagewatch.core.deflate import gzipped
from stagewatch.core.exposition import Renderer, Samples, counter, gauge, render
from stagewatch.core.runner import Runner, Snapshot
from stagewatch.web.message import Request, Response

TEXT = "text/plain; version=0.0.4; charset=utf-8"

BUILD_INFO = gauge(
    "stagewatch_build_info",
    "1, with the versions of stagewatch and of the Python that runs it.",
    ("version", "python"),
)
PROCESS_STARTED = gauge("process_start_time_seconds", "When the agent began, as Unix time.")
PROCESS_CPU = counter("process_cpu_seconds_total", "CPU time of the agent, not of its children.")
PROCESS_MEMORY = gauge("process_resident_memory_bytes", "Memory of the agent that is resident.")

HEALTH_SECONDS = 0.1
"""How old the agent's own health may be that a further scraper gets."""


class MetricsPage:
    """Answers a scrape; makes one page for all who ask before a collector leaves a new text."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._health = Renderer()
        build = Samples()
        build.add(BUILD_INFO, 1, stagewatch.__version__, platform.python_version())
        build.add(PROCESS_STARTED, time.time())
        self._build = render(build)
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._statm)
        self._own = Snapshot(build, b"", float("-inf"))
        """The agent's health, and what it runs on."""
        self._made = _Made([])
        self._lock = threading.Lock()

    def __call__(self, _: Request) -> Response:
        """All metrics."""
        with self._lock:  # of several at the same moment, one makes the page
            made = self._made = self._current()
        return Response(HTTPStatus.OK, TEXT, made.body, in_gzip=lambda: made.in_gzip)

    def _current(self) -> _Made:
        fresh = [job.fresh() for job in self._runner.jobs.values()]
        now = time.monotonic()
        if now - self._own.taken > HEALTH_SECONDS:
            health = self._runner.health()
            health.add(PROCESS_CPU, time.process_time())
            resident = os.pread(self._statm, 256, 0).split()[1]
            health.add(PROCESS_MEMORY, int(resident) * resource.getpagesize())
            self._own = Snapshot(health, self._build + self._health.render(health), now)
        parts = [self._own, *[snapshot for snapshot in fresh if snapshot is not None]]
        return self._made if self._made.parts == parts else _Made(parts)


@dataclass(eq=False)
class _Made:
    """A page, and what it is made of."""

    parts: list[Snapshot]

    @cached_property
    def body(self) -> bytes:
        return b"".join([part.text for part in self.parts])

    @cached_property
    def in_gzip(self) -> bytes:
        return gzipped([part.deflated() for part in self.parts], self.body)
