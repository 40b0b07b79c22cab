"""Gathers what is known of one injected fault and makes the experiment of it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.components import Component, Target, component_of, target_of
from stagewatch.report.diagnosis import Diagnosis, Suspect, diagnose, suspects
from stagewatch.report.events import events_of
from stagewatch.report.fault import Fault, find_fault
from stagewatch.report.findings import Finding, Scene, findings_of
from stagewatch.report.firing import VERDICTS, Firing, firings
from stagewatch.report.history import Grid, History, Line, measure, quoted
from stagewatch.report.milestones import Milestones, View, controller_view, milestones
from stagewatch.report.periods import Period, baseline_period, iso
from stagewatch.report.progress import Progress
from stagewatch.report.signals import SIGNALS, selectors
from stagewatch.stages import STAGES

LEAD_SECONDS = 60.0
"""Time before the injection that the figures show."""

_OTHER_STEPS = 12


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for."""

    fault_id: str
    baseline: str = "10m-before"
    job_id: str = ""
    origin: str = ""
    """Where the fault was put, if the marker's target does not say it so that it is understood."""
    after: float = 300.0
    """Seconds after the end of the fault that are looked at."""
    days: float = 31.0


@dataclass(frozen=True, slots=True)
class Side:
    """What one view saw."""

    view: View
    milestones: Milestones
    diagnosis: Diagnosis
    suspects: Sequence[Suspect]


@dataclass(frozen=True, slots=True)
class Experiment:
    """An injected fault, as everything shows it (`full`) and as the controller alone does."""

    fault: Fault
    target: Target
    job_id: str
    nodes: tuple[str, ...]
    roles: Mapping[str, int]
    baseline: Period
    run: Period
    interval: float
    grid: Grid
    full: Side
    controller: Side
    stages: Mapping[Component, Sequence[str | None]]
    job_running: Sequence[float | None]
    """1 while Slurm had the job running; all None where Slurm is not watched."""

    @property
    def name(self) -> str:
        """For a title."""
        what = f"{self.fault.fault_type} on {self.fault.target or 'an unnamed target'}"
        return f"{self.fault.scenario or self.fault.id}: {what}"


def make_experiment(api: PrometheusApi, wanted: Wanted, progress: Progress) -> Experiment:
    """Ask for everything and put it together.  Raises `StagewatchError`."""
    fault = find_fault(api, wanted.fault_id, wanted.days)
    baseline = baseline_period(wanted.baseline, fault.start)
    end = min(time.time(), (fault.end or time.time()) + wanted.after)
    run = Period(fault.start - min(LEAD_SECONDS, baseline.seconds), end)
    intervals = measure(api, fault.cluster, (fault.start + 1, end))
    job_id = wanted.job_id or _only_job(api, fault)
    progress.expect(2 * len(SIGNALS) + _OTHER_STEPS + len(VERDICTS))
    history = History(api, run, progress, intervals=intervals)
    past = History(api, baseline, progress, intervals=intervals)
    members = _members(api, fault, job_id, run)
    job, nodes = selectors(fault.cluster, job_id, members.nodes)
    stages = _stages(history, job)
    scene = Scene(history.grid, fault.start, stages, members.gpu_owner)
    findings: list[Finding] = []
    seen_since = baseline.end
    for signal in SIGNALS:
        asked = signal.for_job(job, nodes)
        before = past.lines(asked, f"{signal.name}, baseline")
        seen_since = min([seen_since, *(_first_seen(past.grid, line) for line in before)])
        findings += findings_of(signal, before, history.lines(asked, signal.name), scene)
    view = View(
        "full",
        findings,
        events_of(history, job, nodes, members.roles, fault.start),
        _firings(history, fault, job_id, members.nodes),
    )
    target = target_of(wanted.origin or fault.target)
    running = history.lines(
        f"max (last_over_time(slurm_job_info{{{job}}}[{{window}}]))", "job state"
    )
    return Experiment(
        fault=fault,
        target=target,
        job_id=job_id,
        nodes=members.nodes,
        roles=members.roles,
        baseline=Period(seen_since, baseline.end) if seen_since < baseline.end else baseline,
        run=run,
        interval=intervals.scrape,
        grid=history.grid,
        full=_side(view, fault, target, members.roles, stages, history.grid),
        controller=_side(controller_view(view), fault, target, members.roles, stages, history.grid),
        stages=stages,
        job_running=running[0].values if running else [None] * history.grid.count,
    )


def _first_seen(grid: Grid, line: Line) -> float:
    return next(
        (grid.time(at) for at, each in enumerate(line.values) if each is not None), math.inf
    )


@dataclass(frozen=True, slots=True)
class _Members:
    nodes: tuple[str, ...]
    roles: Mapping[str, int]
    gpu_owner: Mapping[str, Component]


def _only_job(api: PrometheusApi, fault: Fault) -> str:
    """The one job with live ranks in the minute before the injection."""
    ranks = f"rl_rank_up{{cluster={quoted(fault.cluster)}}}"
    found = api.query(f"count by (job_id) (last_over_time({ranks}[60s]) == 1)", fault.start + 1)
    jobs = sorted(each.labels.get("job_id", "") for each in found)
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        raise StagewatchError(
            f"no job had live ranks on cluster {fault.cluster!r} at {iso(fault.start)}, when "
            f"{fault.id} was injected: is this the right server?"
        )
    raise StagewatchError(f"several jobs ran: choose with --job one of {', '.join(jobs[:20])}")


def _members(api: PrometheusApi, fault: Fault, job_id: str, run: Period) -> _Members:
    job = f"cluster={quoted(fault.cluster)}, job_id={quoted(job_id)}"
    window = f"[{max(60, round(run.end - run.start))}s]"
    found = api.query(
        f"max by (node, role, rank, uuid) (last_over_time(rl_rank_info{{{job}}}{window}))", run.end
    )
    if not found:
        raise StagewatchError(f"job {job_id!r} had no ranks around {iso(fault.start)}")
    ranks = {component_of(each.labels) for each in found}
    users: dict[str, set[Component]] = {}
    for each in found:
        if uuid := each.labels.get("uuid"):
            users.setdefault(uuid, set()).add(component_of(each.labels))
    return _Members(
        nodes=tuple(sorted({each.labels.get("node", "") for each in found})),
        roles=dict(sorted(Counter(rank.role for rank in ranks).items())),
        gpu_owner={uuid: next(iter(who)) for uuid, who in users.items() if len(who) == 1},
    )


def _stages(history: History, job: str) -> dict[Component, Sequence[str | None]]:
    query = f"max by (role, rank) (last_over_time(rl_rank_stage_code{{{job}}}[{{window}}]))"
    return {
        component_of(line.labels): [
            None if value is None or not 0 <= value < len(STAGES) else STAGES[int(value)]
            for value in line.values
        ]
        for line in history.lines(query, "stages")
    }


def _firings(history: History, fault: Fault, job_id: str, nodes: Sequence[str]) -> list[Firing]:
    """Alerts and verdicts on the job, its nodes or the whole cluster that began with the fault."""
    cluster = quoted(fault.cluster)
    tracks = history.samples(f'ALERTS{{alertstate="firing", cluster={cluster}}}', "alerts")
    for verdict in VERDICTS:
        chosen = f"{verdict}{{cluster={cluster}, job_id={quoted(job_id)}}}"
        tracks += history.samples(chosen, verdict)
    return [
        each
        for each in firings(tracks, history.grid.end)
        if each.start >= fault.start
        and each.labels.get("job_id", job_id) == job_id
        and each.labels.get("node", nodes[0]) in nodes
    ]


def _side(
    view: View,
    fault: Fault,
    target: Target,
    roles: Mapping[str, int],
    stages: Mapping[Component, Sequence[str | None]],
    grid: Grid,
) -> Side:
    seen = milestones(fault, target, view)
    ordered = suspects(view, target, tie=2 * grid.step)
    at = seen.detected.time
    column = grid.count - 1 if at is None else min(grid.index(at), grid.count - 1)
    shown = {component for component in stages if view.name == "full"} | {
        finding.component for finding in view.findings
    }
    open_now = Counter(
        stage
        for component, by_column in stages.items()
        if component in shown and (stage := by_column[column]) and stage != "idle"
    )
    return Side(view, seen, diagnose(view, ordered, target, roles, open_now), ordered)
