"""Gathers the evidence of one injected fault and makes an experiment of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagewatch.core.config import number, option
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.selectors import select
from stagewatch.report.components import Component, Target, component_of, target_of
from stagewatch.report.deviations import SIGNALS, Finding, Scene, findings_of, steady
from stagewatch.report.diagnosis import (
    Diagnosis,
    Milestones,
    Suspect,
    View,
    controller_view,
    diagnose,
    milestones,
    suspects,
)
from stagewatch.report.events import (
    VERDICTS,
    Fault,
    Firing,
    events_of,
    find_fault,
    firings,
    hung_of,
)
from stagewatch.report.history import Grid, History, Labels, Values, measure, milliseconds
from stagewatch.report.periods import Period, baseline_period, iso
from stagewatch.report.progress import Progress
from stagewatch.stages import STAGES

LEAD_SECONDS = 60.0
"""Time before the injection that the figures show."""

PANELS = 5
PER_COMPONENT = 2
PER_SIGNAL = 2
"""Series that a figure shows at most, in all and of one component or signal."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of `stagewatch report experiment`."""

    fault: str = option("", "id of the fault's marker; always needed")
    baseline: str = option("10m-before", "what is normal: 10m-before (the injection) or START..END")
    job: str = option("", "job; the only one if empty")
    origin: str = option(
        "",
        "where the fault was put, as train:5, node-a or /mnt; several by commas; the marker's "
        "target if empty",
    )
    after: float = option(300.0, "how long after the fault's end to look")
    days: float = option(31.0, "how many days back to look for the marker", parse=number)


@dataclass(frozen=True, slots=True)
class Side:
    """One view of the run, with its milestones and diagnosis."""

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
    job_running: Values
    """A value while Slurm had the job running; all None where Slurm is not watched."""

    @property
    def name(self) -> str:
        """The title of the report."""
        what = f"{self.fault.fault_type} on {self.fault.target or 'an unnamed target'}"
        return f"{self.fault.scenario or self.fault.id}: {what}"

    def after(self, when: float | None) -> float | None:
        """Seconds after the injection."""
        return None if when is None else when - self.fault.start


def telling(side: Side) -> list[Finding]:
    """The series to show: at most two of a component and of a kind, in the order they deviated,
    those of the first suspect first; where none deviated, some that have a baseline."""
    chosen: list[Finding] = []
    order = {suspect.component: at for at, suspect in enumerate(side.suspects)}
    candidates = sorted(
        steady(side.view.findings),
        key=lambda each: (order.get(each.component, len(order)) > 0, each.deviated, -each.severity),
    )
    for each in candidates or [each for each in side.view.findings if each.baseline]:
        mine = [one for one in chosen if one.component == each.component]
        alike = any(one.signal == each.signal for one in mine)
        kind = sum(one.signal == each.signal for one in chosen)
        room = len(mine) < PER_COMPONENT and kind < PER_SIGNAL and len(chosen) < PANELS
        if room and not alike:
            chosen.append(each)
    return chosen


def make_experiment(api: PrometheusApi, wanted: Wanted, progress: Progress) -> Experiment:
    """Ask the server and put the experiment together.  Raises `StagewatchError`."""
    if not wanted.fault:
        raise ConfigError("--fault: must be the id of a fault's marker")
    fault = find_fault(api, wanted.fault, wanted.days)
    baseline = baseline_period(wanted.baseline, fault.start)
    end = min(time.time(), (fault.end or time.time()) + wanted.after)
    run = Period(fault.start - min(LEAD_SECONDS, baseline.seconds), end)
    intervals = measure(api, fault.cluster, (fault.start + 1, end))
    job_id = wanted.job or _only_job(api, fault)
    history = History(api, run, progress, intervals=intervals)
    past = history.of(baseline)
    job = {"cluster": fault.cluster, "job_id": job_id}
    members = _members(api, fault, job, run)
    nodes: Labels = {"cluster": fault.cluster, "node": members.nodes}
    stages = _stages(history, job)
    scene = Scene(history.grid, fault.start, stages, members.gpu_owner)
    findings: list[Finding] = []
    seen_since = baseline.end
    for signal in SIGNALS:
        before = past.lines(signal.expression(past, job, nodes), f"{signal.name}, baseline")
        during = history.lines(signal.expression(history, job, nodes), signal.name)
        firsts = [past.grid.time(line.known()[0][0]) for line in before if line.known()]
        seen_since = min([seen_since, *firsts])
        findings += findings_of(signal, before, during, scene)
    view = View(
        "full",
        findings,
        events_of(history, job, nodes, members.roles, fault.start),
        _firings(history, fault, job_id, members.nodes),
        hung_of(history, job, fault.start),
    )
    target = target_of(wanted.origin or fault.target)
    running = history.most("slurm_job_info", job, "", "job state")

    def side(view: View) -> Side:
        seen = milestones(fault, target, view)
        ordered = suspects(view, target, tie=2 * history.grid.step)
        open_now = _open_stages(view, stages, history.grid, seen.detected.time)
        verdict = diagnose(view, ordered, target, members.roles, open_now)
        return Side(view, seen, verdict, ordered)

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
        full=side(view),
        controller=side(controller_view(view)),
        job_running=running[0].values if running else [None] * history.grid.count,
    )


@dataclass(frozen=True, slots=True)
class _Members:
    nodes: tuple[str, ...]
    roles: Mapping[str, int]
    gpu_owner: Mapping[str, Component]


def _only_job(api: PrometheusApi, fault: Fault) -> str:
    """The one job with live ranks in the minute before the injection."""
    ranks = select("rl_rank_up", cluster=fault.cluster)
    live = api.query(f"count by (job_id) (last_over_time({ranks}[60s]) == 1)", fault.start + 1)
    jobs = sorted(each.labels.get("job_id", "") for each in live)
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        raise StagewatchError(
            f"no job had live ranks on cluster {fault.cluster!r} at {iso(fault.start)}, when "
            f"{fault.id} was injected: is this the right server?"
        )
    raise StagewatchError(f"several jobs ran: choose with --job one of {', '.join(jobs[:20])}")


def _members(api: PrometheusApi, fault: Fault, job: Mapping[str, str], run: Period) -> _Members:
    """The ranks of the job during the run, with their nodes and GPUs."""
    window = milliseconds(max(60.0, run.seconds))
    infos = f"last_over_time({select('rl_rank_info', **job)}[{window}])"
    members = api.query(f"max by (node, role, rank, uuid) ({infos})", run.end)
    if not members:
        raise StagewatchError(f"job {job['job_id']!r} had no ranks around {iso(fault.start)}")
    ranks = {component_of(each.labels) for each in members}
    users: dict[str, set[Component]] = {}
    for each in members:
        if uuid := each.labels.get("uuid"):
            users.setdefault(uuid, set()).add(component_of(each.labels))
    return _Members(
        nodes=tuple(sorted({each.labels.get("node", "") for each in members})),
        roles=dict(sorted(Counter(rank.role for rank in ranks).items())),
        gpu_owner={uuid: next(iter(who)) for uuid, who in users.items() if len(who) == 1},
    )


def _stages(history: History, job: Labels) -> dict[Component, list[str | None]]:
    """The stage of each rank, by column."""
    return {
        component_of(line.labels): [
            None if value is None or not 0 <= value < len(STAGES) else STAGES[int(value)]
            for value in line.values
        ]
        for line in history.most("rl_rank_stage_code", job, "role, rank", "stages")
    }


def _open_stages(
    view: View, stages: Mapping[Component, Sequence[str | None]], grid: Grid, when: float | None
) -> Counter[str]:
    """How many ranks of a view were in each stage at a time, or at the end."""
    last = grid.count - 1
    column = last if when is None else min(grid.index(when), last)
    shown = {finding.component for finding in view.findings}
    return Counter(
        stage
        for component, by_column in stages.items()
        if view.name == "full" or component in shown
        if (stage := by_column[column]) and stage != "idle"
    )


def _firings(history: History, fault: Fault, job_id: str, nodes: Sequence[str]) -> list[Firing]:
    """Alerts and verdicts on the job, its nodes or the whole cluster that began with the fault."""
    alerts = select("ALERTS", alertstate="firing", cluster=fault.cluster)
    tracks = history.samples(alerts, "alerts")
    for verdict in VERDICTS:
        chosen = select(verdict, cluster=fault.cluster, job_id=job_id)
        tracks += history.samples(chosen, verdict)
    return [
        each
        for each in firings(tracks, history.grid.end)
        if each.start >= fault.start
        and each.labels.get("job_id", job_id) == job_id
        and each.labels.get("node", nodes[0]) in nodes
    ]
