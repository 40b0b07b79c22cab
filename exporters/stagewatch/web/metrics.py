"""`/metrics`: joins the texts that the collectors have left; a scrape collects nothing.

A scrape makes only the agent's own health and process figures, from memory and /proc/self.  The
latter are those that every client library of Prometheus has; that of Python, which would make them,
takes 6 MiB, since it comes with an HTTP server and TLS of its own.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import time
from http import HTTPStatus
from pathlib import Path

import stagewatch
from stagewatch.core.exposition import Metric, Samples, render
from stagewatch.core.runner import Runner
from stagewatch.host.procfs import PAGE_SIZE, TICKS_PER_SECOND, Procfs
from stagewatch.web.message import Request, Response

TEXT = "text/plain; version=0.0.4; charset=utf-8"

BUILD_INFO = Metric(
    "stagewatch_build_info",
    "gauge",
    "1, with the versions of stagewatch and of the Python that runs it.",
    ("version", "python"),
)
VIRTUAL = Metric("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.")
RESIDENT = Metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
START = Metric(
    "process_start_time_seconds",
    "gauge",
    "Start time of the process since unix epoch in seconds.",
)
CPU = Metric(
    "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."
)
OPEN_FILES = Metric("process_open_fds", "gauge", "Number of open file descriptors.")
MAX_FILES = Metric("process_max_fds", "gauge", "Maximum number of open file descriptors.")


class MetricsPage:
    """Answers a scrape."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._started = _started()
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
            render(_process(self._started)),
        ]
        return Response(HTTPStatus.OK, TEXT, b"".join(parts))


def _started() -> float | None:
    """When this process began, as Unix time; `None` where the kernel does not say."""
    stat = Procfs().stat(os.getpid())
    if stat is None:
        return None
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + stat.start_ticks / TICKS_PER_SECOND


def _process(started: float | None) -> Samples:
    """What this process takes, without its children; see proc_pid_statm(5)."""
    out = Samples()
    with contextlib.suppress(OSError):
        virtual, resident, *_ = Path("/proc/self/statm").read_bytes().split()
        out.add(VIRTUAL, int(virtual) * PAGE_SIZE)
        out.add(RESIDENT, int(resident) * PAGE_SIZE)
    out.add(START, started)
    out.add(CPU, time.process_time())
    with contextlib.suppress(OSError):
        out.add(OPEN_FILES, sum(1 for _ in Path("/proc/self/fd").iterdir()))
    out.add(MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return out
