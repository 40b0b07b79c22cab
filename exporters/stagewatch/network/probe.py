"""Configured names and endpoints, as this node reaches them: DNS, TCP, TLS, HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from stagewatch.core.children.collector import JobsCollector
from stagewatch.core.children.helper import Helper, JobSpec, JobState
from stagewatch.core.collector import Declaration
from stagewatch.core.config import duration, listing, option, text
from stagewatch.core.exposition import Samples, gauge

MAX_TARGETS = 50
MIN_INTERVAL = 1.0
"""Seconds between two probes of one target, however short an interval is asked for."""

SECONDS = gauge(
    "net_probe_seconds",
    "How long each phase of the last probe took: dns, connect, tls, http (until the status line).",
    ("target", "phase"),
)
SUCCESS = gauge(
    "net_probe_success",
    "1 if the last probe got through all its phases, over HTTP to a status below 400.",
    ("target",),
)
ERROR = gauge(
    "net_probe_error",
    "1 for the phase the last probe failed in, with the error: an errno, a resolver's EAI_ code, "
    "certificate, tls, no_http, status_NNN, or deadline if it never returned.",
    ("target", "phase", "error"),
)


def target(value: Any) -> str:
    """dns:NAME, tcp:HOST:PORT, http://... or https://..."""
    found = text(value)
    url = urlsplit(found)
    known = {
        "dns": re.fullmatch(r"dns:[\w.:-]+", found),
        "tcp": re.fullmatch(r"tcp:(\[[\w.:%-]+\]|[\w.-]+):\d{1,5}", found),
        "http": url.hostname and (url.port or True),
        "https": url.hostname and (url.port or True),
    }
    if not known.get(url.scheme) or not found.isprintable() or " " in found:
        raise ValueError
    return found


def targets(value: Any) -> tuple[str, ...]:
    """at most 50 of dns:NAME, tcp:HOST:PORT, http://... or https://..., as an array or with \
commas"""
    found: tuple[str, ...] = listing(target)(value)
    if len(found) > MAX_TARGETS:
        raise ValueError
    return found


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Options of the `probe` collector."""

    targets: tuple[str, ...] = option(
        (), "what to probe: dns:NAME, tcp:HOST:PORT, http://... or https://...", parse=targets
    )
    every: float = option(15.0, "time between two probes of a target", parse=duration)
    timeout: float = option(5.0, "timeout of a connection or an answer", parse=duration)
    deadline: float = option(
        40.0, "timeout of a probe; resolvers alone may take 30s", parse=duration
    )


class ProbeCollector(JobsCollector):
    """Shows the result of the last probe of every target."""

    items = "target"

    def show(self, out: Samples, name: str, state: JobState) -> None:
        if state.hung is not None:
            out.add(SUCCESS, 0, name)
            out.add(ERROR, 1, name, state.hung_phase, "deadline")
            return
        result = state.fresh
        if result is None:
            return
        for phase, seconds in result["seconds"].items():
            out.add(SECONDS, seconds, name, phase)
        failed = result.get("error")
        out.add(SUCCESS, int(failed is None), name)
        if failed is not None:
            out.add(ERROR, 1, name, failed["phase"], failed["error"])


def job(target: str, options: ProbeOptions) -> JobSpec:
    """The helper's task for one target."""
    return JobSpec(
        "stagewatch.network.probe_child:run",
        {"target": target, "timeout": options.timeout},
        interval=max(MIN_INTERVAL, options.every),
        deadline=options.deadline,
    )


def collector(options: ProbeOptions, helper: Helper) -> ProbeCollector:
    """Probes every target in a child of the helper process."""
    jobs = {target: job(target, options) for target in options.targets}
    return ProbeCollector(helper.share("probe", jobs))


SPEC = Declaration(
    name="probe",
    help="names and endpoints as this node sees them: DNS, TCP, TLS, HTTP",
    interval=5.0,
    options=ProbeOptions,
)
