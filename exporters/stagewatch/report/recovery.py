"""Failures and recoveries of a period, cluster by cluster: what `report recovery` shows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.history import History, Line, measure, quoted
from stagewatch.report.periods import Period, iso
from stagewatch.report.phases import QUERIES_EACH, Phases, phases_of
from stagewatch.report.progress import Progress
from stagewatch.report.same_failure import absorbed
from stagewatch.report.scrapes import Scrapes, scrapes_of, total_increase, unseen_seconds
from stagewatch.report.signs import Incident, find_signs, incidents_of, union
from stagewatch.report.slo import Slo, judge

SWEEP_COLUMNS = 45_000
"""A month at a minute."""

MAX_INCIDENTS = 200
"""Looked at closely; those with jobs before those without, and the latest first."""

_QUERIES = 14


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked for.  `budget` is the period that the error budget is of."""

    period: Period
    budget: Period
    slo: float = 0.999
    cluster: str = ""
    throughput: str = ""


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """One cluster over the period."""

    cluster: str
    resolution: float
    incidents: Sequence[Phases]
    left_out: int
    scrapes: Sequence[Scrapes]
    slo: Slo
    jobs_seen: int
    nodes: int | None
    node_hours_out: float
    stalled_gpu_hours: float | None
    interrupted_gpu_hours: float | None
    runs_ended: dict[str, float]
    requeues: float | None
    first_seen: float
    """The first time at which anything was scraped; the cluster is judged from then on."""

    @property
    def repairs(self) -> list[float]:
        """Downtimes of the incidents that hit a job, in seconds."""
        return [each.downtime.seconds for each in self.incidents if each.downtime]

    @property
    def wasted_gpu_hours(self) -> float | None:
        """Both kinds together; None if neither is known."""
        known = [self.stalled_gpu_hours, self.interrupted_gpu_hours]
        return (
            sum(each for each in known if each is not None)
            if any(each is not None for each in known)
            else None
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """The whole report."""

    asked: Asked
    clusters: Sequence[ClusterRecovery]


def make_recovery(api: PrometheusApi, asked: Asked, progress: Progress) -> Recovery:
    """Ask for everything.  Raises `StagewatchError`, also where nothing was scraped at all."""
    names = [asked.cluster] if asked.cluster else _clusters(api, asked.period)
    progress.expect(_QUERIES * len(names))
    return Recovery(asked, [_cluster(api, asked, name, progress) for name in names])


def _clusters(api: PrometheusApi, period: Period) -> list[str]:
    window = f"[{max(60, round(period.seconds))}s]"
    selector = f'up{{job=~"stagewatch.*"}}{window}'
    found = api.query(f"count by (cluster) (count_over_time({selector}))", period.end)
    names = sorted(each.labels.get("cluster", "") for each in found)
    if not names:
        raise StagewatchError(
            f"no agent was scraped from {iso(period.start)} to {iso(period.end)}: is this the "
            "right server and the right period?"
        )
    return names


def _cluster(api: PrometheusApi, asked: Asked, cluster: str, progress: Progress) -> ClusterRecovery:
    period = asked.period
    chosen = f"cluster={quoted(cluster)}"
    seen = _seen(api, chosen, period)
    step = max(600.0, seen[1] - seen[0] if len(seen) > 1 else 0.0)
    intervals = measure(api, cluster, (seen[-1], seen[len(seen) // 2], seen[0]), step)
    first = max(period.start, seen[0] - _step(period))
    period = Period(first, period.end)
    history = History(api, period, progress, intervals=intervals, columns=SWEEP_COLUMNS)
    incidents = incidents_of(find_signs(history, cluster))
    close = _worth_a_look(incidents)
    progress.expect(QUERIES_EACH * len(close))
    found = [
        phases_of(
            api,
            incident,
            cluster,
            period,
            progress,
            intervals=intervals,
            throughput=asked.throughput,
        )
        for incident in close
    ]
    looked_at = absorbed(found)
    jobs = _largest(
        history.lines(
            f"count (count by (job_id) (last_over_time(slurm_job_info{{{chosen}}}[{{window}}])))",
            "jobs",
        )
    ) or _largest(
        history.lines(
            f"count (count by (job_id) (last_over_time(rl_rank_up{{{chosen}}}[{{window}}])))",
            "jobs",
        )
    )
    nodes = _usual(
        history.lines(f"sum (last_over_time(slurm_cluster_nodes{{{chosen}}}[{{window}}]))", "nodes")
    ) or _usual(
        history.lines(
            f'count (last_over_time(up{{{chosen}, job="stagewatch"}}[{{window}}]))', "nodes"
        )
    )
    wasted = total_increase(
        history, f"job:rl_wasted_gpu_seconds:total{{{chosen}}}", "job_id", "wasted GPU time"
    )
    requeues = total_increase(
        history, f"slurm_job_requeues_total{{{chosen}}}", "cluster", "requeues"
    )
    downtimes = union([each.downtime for each in looked_at if each.downtime])
    down = sum(each.seconds for each in downtimes)
    unseen = unseen_seconds(history, cluster)
    return ClusterRecovery(
        cluster=cluster,
        resolution=history.grid.step,
        incidents=sorted(looked_at, key=lambda each: each.began),
        left_out=len(incidents) - len(close),
        scrapes=scrapes_of(history, cluster),
        slo=judge(asked.slo, asked.budget.seconds, period.seconds, down, unseen, seen=bool(jobs)),
        jobs_seen=jobs or 0,
        nodes=nodes,
        node_hours_out=_node_hours(incidents),
        stalled_gpu_hours=sum(wasted.values()) / 3600 if wasted else None,
        interrupted_gpu_hours=_interrupted(looked_at),
        runs_ended=total_increase(history, f"slurm_jobs_ended_total{{{chosen}}}", "state", "ends"),
        requeues=sum(requeues.values()) if requeues else None,
        first_seen=first,
    )


def _step(period: Period) -> float:
    return max(1.0, period.seconds / 1000)


def _seen(api: PrometheusApi, chosen: str, period: Period) -> list[float]:
    """When agents were scraped, to a thousandth of the period."""
    step = _step(period)
    query = f'count (last_over_time(up{{{chosen}, job=~"stagewatch.*"}}[{int(step * 1000)}ms]))'
    tracks = api.query_range(query, period.start, period.end, step)
    if not tracks:
        raise StagewatchError(
            f"no agent of {chosen} was scraped from {iso(period.start)} to {iso(period.end)}"
        )
    return [when for when, _ in tracks[0].samples]


def _worth_a_look(incidents: Sequence[Incident]) -> list[Incident]:
    ordered = sorted(incidents, key=lambda each: (not each.jobs, -each.start))
    return ordered[:MAX_INCIDENTS]


def _largest(lines: Sequence[Line]) -> int | None:
    values = [value for line in lines for value in line.values if value is not None]
    return round(max(values)) if values else None


def _usual(lines: Sequence[Line]) -> int | None:
    """The median: while a node changes its state, it is counted in both."""
    values = [value for line in lines for value in line.values if value is not None]
    return round(statistics.median(values)) if values else None


def _node_hours(incidents: Sequence[Incident]) -> float:
    """Hours that nodes were out of service, each node once, by Slurm or by a silent agent."""
    out: dict[str, list[Period]] = {}
    for incident in incidents:
        for sign in incident.signs:
            if sign.kind in ("drain", "down", "fail", "silent") and sign.end > sign.start:
                out.setdefault(sign.node, []).append(Period(sign.start, sign.end))
    return sum(each.seconds for periods in out.values() for each in union(periods)) / 3600


def _interrupted(incidents: Sequence[Phases]) -> float | None:
    """GPUs of the jobs that stopped, times how long they did not train; None if not known."""
    found = [
        job.gpus * (job.restored - job.ended)
        for each in incidents
        for job in each.jobs
        if job.interrupted
        and job.gpus is not None
        and job.ended is not None
        and job.restored is not None
    ]
    return sum(found) / 3600 if found else None
