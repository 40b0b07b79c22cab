"""Gathers the evidence of one injected fault: an experiment."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.core.config import number, option
from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.selectors import select
from stagewatch.report import events
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
from stagewatch.report.history import Grid, History, Labels, measure, milliseconds
from stagewatch.report.jobs import live
from stagewatch.report.periods import Period, baseline_period, iso
from stagewatch.stages import STAGES

LEAD_SECONDS = 60.0
"""Time before the injection that the figures show."""

PANELS = 5
"""The most series in a figure."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of `stagewatch report experiment`."""

    fault: str = option("", "id of the fault's marker; always needed")
    baseline: str = option("10m-before", "normal time: 10m-before (the injection) or START..END")
    job: str = option("", "job; the only one if empty")
    origin: str = option(
        "",
        "where the fault was put, as train:5, node-a or /mnt; several by commas; the marker's "
        "target if empty",
    )
    after: float = option(300.0, "how long after the fault's end to look")
    days: float = option(31.0, "how many days back to look for the marker", parse=number)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a fault cost the job, in seconds; None if no steps were seen before the fault."""

    usual_step: float | None = None
    """The median time between two steps of the baseline."""
    standstill: Period | None = None
    """The longest time without a step after the injection."""
    goes_on: bool = False
    """Whether a step followed."""
    gpu_seconds: float = 0.0
    """GPU-seconds of the stalled job, by the rules; replayed GPUs count too."""

    @property
    def stopped(self) -> bool:
        """Whether the job stood still for longer than three usual steps."""
        return (
            self.standstill is not None
            and self.usual_step is not None
            and self.standstill.seconds > 3 * self.usual_step
        )


@dataclass(frozen=True, slots=True)
class Experiment:
    """An injected fault and its evidence; `alone`: the milestones as the controller alone shows
    them."""

    fault: events.Fault
    target: Target
    job_id: str
    nodes: tuple[str, ...]
    roles: Mapping[str, int]
    baseline: Period
    run: Period
    interval: float
    before: Grid
    """The grid of the baseline."""
    grid: Grid
    view: View
    milestones: Milestones
    suspects: Sequence[Suspect]
    diagnosis: Diagnosis
    alone: Milestones
    recorded: int
    """GPUs of the job's nodes whose readings are replayed from a recording."""
    cost: Cost

    @property
    def name(self) -> str:
        """The title of the report."""
        return f"{self.fault.kind} on {self.fault.target or 'an unnamed target'}"

    @property
    def watched(self) -> bool:
        """Whether anything was judged or happened, so that there is something to draw."""
        return any(each.baseline for each in self.view.findings) or bool(self.view.events)

    def telling(self) -> list[Finding]:
        """The series to show: for every signal, that of the first suspect, else the one that
        deviated first."""
        first = [suspect.component for suspect in self.suspects[:1]]
        by_signal: dict[str, Finding] = {}
        for each in sorted(
            steady(self.view.findings), key=lambda each: each.component not in first
        ):
            by_signal.setdefault(each.signal.name, each)
        return list(by_signal.values())[:PANELS]

    def after(self, when: float | None) -> float | None:
        """A Unix time as seconds after the injection."""
        return None if when is None else when - self.fault.start


def make_experiment(api: PrometheusApi, wanted: Wanted) -> Experiment:
    """Ask the server and put the experiment together.  Raises `StagewatchError`."""
    if not wanted.fault:
        raise ConfigError("--fault: must be the id of a fault's marker")
    fault = events.find_fault(api, wanted.fault, wanted.days)
    baseline = baseline_period(wanted.baseline, fault.start)
    end = min(time.time(), (fault.end or time.time()) + wanted.after)
    intervals = measure(api, fault.cluster, (fault.start + 1, end))
    run = Period(fault.start - min(LEAD_SECONDS, baseline.seconds), end)
    run = _seen(History(api, run, intervals=intervals), fault)
    job_id = wanted.job or _only_job(api, fault)
    history = History(api, run, intervals=intervals)
    past = history.of(baseline)
    job = {"cluster": fault.cluster, "job_id": job_id}
    members = _members(api, fault, job, run)
    roles = Counter(rank.role for rank in {component_of(each) for each in members})
    names = tuple(sorted({each.get("node", "") for each in members}))
    nodes: Labels = {"cluster": fault.cluster, "node": names}
    stages = _stages(history, job)
    recorded = _recorded(api, nodes, run)
    scene = Scene(history.grid, fault.start, stages, _gpu_owners(members))
    findings: list[Finding] = []
    seen_since = baseline.end
    for signal in SIGNALS:
        before = past.lines(signal.expression(past, job, nodes))
        during = [
            line
            for line in history.lines(signal.expression(history, job, nodes))
            if line.labels.get("uuid") not in recorded
        ]
        firsts = [past.grid.time(line.known()[0][0]) for line in before if line.known()]
        seen_since = min([seen_since, *firsts])
        findings += findings_of(signal, before, during, scene)
    view = View(
        findings,
        events.events_of(history, job, nodes, roles, fault.start, recorded),
        _firings(history, fault, job_id, names, recorded),
        events.hung_of(history, job, fault.start),
        kernel=events.kernel_events(history, nodes, fault.start),
    )
    target = target_of(wanted.origin or fault.target)
    seen = milestones(fault, target, view)
    ordered = suspects(view, target, tie=2 * history.grid.step)
    stages_open = _open_stages(stages.values(), history.grid, seen["detected"].time)
    return Experiment(
        fault=fault,
        target=target,
        job_id=job_id,
        nodes=names,
        roles=dict(sorted(roles.items())),
        baseline=Period(seen_since, baseline.end) if seen_since < baseline.end else baseline,
        run=run,
        interval=intervals.scrape,
        before=past.grid,
        grid=history.grid,
        view=view,
        milestones=seen,
        suspects=ordered,
        diagnosis=diagnose(view.events, ordered, stages_open),
        alone=milestones(fault, target, controller_view(view)),
        recorded=len(recorded),
        cost=_cost(history, past, job, fault.start),
    )


def _seen(history: History, fault: events.Fault) -> Period:
    """The run up to the last time at which anything was scraped."""
    scrapes = history.most("up", {"cluster": fault.cluster}, "", "count")
    last = max((at for line in scrapes for at, _ in line.known()), default=history.grid.count - 1)
    end = history.grid.time(last + 1)
    return Period(history.period.start, min(history.period.end, max(end, fault.start + 1)))


def _cost(history: History, past: History, job: Labels, since: float) -> Cost:
    """The cost: the longest time without a completed step after the injection."""

    def steps(asked: History) -> list[float]:
        lines = asked.lines(f"max ({live(asked, 'rl_rank_step', job)})")
        return [asked.grid.time(at) for line in lines for at, _ in line.rises()]

    before, after = steps(past), [when for when in steps(history) if when >= since]
    usual = [later - earlier for earlier, later in itertools.pairwise(before)]
    times = [*before[-1:], *after, history.grid.end]
    wasted = history.growth("job:rl_wasted_gpu_seconds:total", job) or 0.0
    if not usual:
        return Cost()
    begin, end = max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])
    return Cost(statistics.median(usual), Period(begin, end), end in after, wasted)


def _recorded(api: PrometheusApi, nodes: Labels, run: Period) -> frozenset[str]:
    """The GPUs, by uuid, whose readings came from a recording at any time of the run."""
    window = milliseconds(max(60.0, run.seconds))
    infos = f"last_over_time({select('gpu_info', **nodes, source='recorded')}[{window}])"
    return frozenset(each.labels.get("uuid", "") for each in api.query(infos, run.end))


def _only_job(api: PrometheusApi, fault: events.Fault) -> str:
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


def _members(
    api: PrometheusApi, fault: events.Fault, job: Mapping[str, str], run: Period
) -> list[Mapping[str, str]]:
    """The labels of the job's ranks during the run, with their nodes and GPUs."""
    window = milliseconds(max(60.0, run.seconds))
    infos = f"last_over_time({select('rl_rank_info', **job)}[{window}])"
    members = api.query(f"max by (node, role, rank, uuid) ({infos})", run.end)
    if not members:
        raise StagewatchError(f"job {job['job_id']!r} had no ranks around {iso(fault.start)}")
    return [each.labels for each in members]


def _gpu_owners(members: Iterable[Mapping[str, str]]) -> dict[str, Component]:
    """The rank of each GPU, by uuid, that only one rank has."""
    users: dict[str, set[Component]] = {}
    for labels in members:
        if uuid := labels.get("uuid"):
            users.setdefault(uuid, set()).add(component_of(labels))
    return {uuid: next(iter(who)) for uuid, who in users.items() if len(who) == 1}


def _stages(history: History, job: Labels) -> dict[Component, list[str | None]]:
    """The stage of every rank, by column."""
    return {
        component_of(line.labels): [
            None if value is None or not 0 <= value < len(STAGES) else STAGES[int(value)]
            for value in line.values
        ]
        for line in history.most("rl_rank_stage_code", job, "role, rank")
    }


def _open_stages(
    stages: Iterable[Sequence[str | None]], grid: Grid, when: float | None
) -> Counter[str]:
    """The number of ranks in each stage at a time, or at the end of the run if that is earlier."""
    last = grid.count - 1
    column = last if when is None else min(grid.index(when), last)
    now = (by_column[column] for by_column in stages)
    return Counter(stage for stage in now if stage and stage != "idle")


def _firings(
    history: History,
    fault: events.Fault,
    job_id: str,
    nodes: Sequence[str],
    recorded: Collection[str],
) -> list[events.Firing]:
    """The alerts and verdicts on the job, its nodes or the whole cluster that began after the
    fault, without those on replayed GPUs (`recorded`, by uuid)."""
    alerts = select("ALERTS", alertstate="firing", cluster=fault.cluster)
    tracks = history.samples(alerts)
    for verdict in events.VERDICTS:
        chosen = select(verdict, cluster=fault.cluster, job_id=job_id)
        tracks += history.samples(chosen)
    return [
        each
        for each in events.firings(tracks, history.grid.end)
        if each.start >= fault.start
        and each.labels.get("job_id", job_id) == job_id
        and each.labels.get("node", nodes[0]) in nodes
        and each.labels.get("uuid") not in recorded
    ]
