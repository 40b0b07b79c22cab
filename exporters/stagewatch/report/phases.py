"""The phases of one incident: injected, detected, drained, job ended, node back, job resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.close_look import CloseLook
from stagewatch.report.history import Grid, History, Intervals
from stagewatch.report.job_story import BEFORE_SECONDS, JobStory, stories
from stagewatch.report.periods import Period
from stagewatch.report.progress import Progress
from stagewatch.report.signs import Incident

AFTER_SECONDS = 3600.0
"""How long after the last sign a job's return is waited for."""

QUERIES_EACH = 11


@dataclass(frozen=True, slots=True)
class Phases:
    """One incident in detail; `downtime` is what counts against the SLO, None: no job was hit."""

    incident: Incident
    began: float
    resolution: float
    injected: float | None = None
    detected: float | None = None
    detected_by: str = ""
    drained: float | None = None
    node_back: float | None = None
    jobs: tuple[JobStory, ...] = ()
    downtime: Period | None = None
    restored: bool = False
    """Whether every interrupted job was seen to run again."""
    grid: Grid = field(default_factory=lambda: Grid(0, 1, 1))
    running: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def ended(self) -> float | None:
        """When the first job ended."""
        return min((job.ended for job in self.jobs if job.ended is not None), default=None)

    @property
    def resumed(self) -> float | None:
        """When the last of those that ended ran again; None unless all did."""
        times = [job.resumed for job in self.jobs if job.ended is not None]
        known = [when for when in times if when is not None]
        return max(known) if known and len(known) == len(times) else None


def phases_of(
    api: PrometheusApi,
    incident: Incident,
    cluster: str,
    within: Period,
    progress: Progress,
    *,
    intervals: Intervals,
    throughput: str = "",
) -> Phases:
    """Look closely at an incident; `within` is the period of the report."""
    look = Period(
        max(within.start - BEFORE_SECONDS, incident.start - BEFORE_SECONDS),
        min(within.end, incident.end + AFTER_SECONDS),
    )
    history = History(api, look, progress, intervals=intervals, columns=5000)
    close = CloseLook(history, cluster, incident)
    jobs = close.jobs()
    injected = close.injected()
    running = close.running(jobs)
    jobs = tuple(job for job in jobs if any(running[job]))
    outages = close.outages()
    began = injected or min([incident.start, *(first for first, _ in outages.values())])
    told = stories(close, jobs, Period(began, incident.end), running, incident.signs, throughput)
    hit = [job for job in told if job.interrupted]
    if injected is None:
        began = min([began, *(job.ended for job in hit if job.ended is not None)])
    restored = [job.restored for job in hit]
    until = max((when for when in restored if when is not None), default=None)
    all_back = bool(hit) and None not in restored
    if hit and not all_back:
        until = max(until or 0.0, incident.end)
    # One that fails at its start again and again is never seen to run, and told all the same.
    alert = close.detected(began, {*jobs, *incident.jobs})
    drained = [first for key, (first, _) in outages.items() if key[1] != "silent"]
    back = [last for _, last in outages.values()]
    return Phases(
        incident=incident,
        began=began,
        resolution=history.grid.step,
        injected=injected,
        detected=alert[0] if alert else None,
        detected_by=alert[1] if alert else "",
        drained=min(drained, default=None),
        node_back=None if not back or None in back else max(when for when in back if when),
        jobs=tuple(told),
        downtime=Period(began, until) if until is not None and until > began else None,
        restored=all_back,
        grid=history.grid,
        running=running,
    )
