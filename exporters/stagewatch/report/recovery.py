"""Failures and recoveries of a period, cluster by cluster: what `report recovery` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.core.config import number, option
from stagewatch.core.errors import StagewatchError
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.prometheus.selectors import Regex, select
from stagewatch.report.history import History, Labels, measure, milliseconds
from stagewatch.report.incidents import Incident, find_signs, incidents_of
from stagewatch.report.periods import Period, PeriodOptions, iso, minute, union
from stagewatch.report.phases import Phases, absorbed, phases_of

SWEEP_COLUMNS = 45_000
"""A month at a minute."""

MAX_INCIDENTS = 200
"""The most incidents to look at closely: those with jobs first, then the latest."""

JUDGED_SECONDS = 43200.0
"""An objective is judged over at least half a day: 99.9 % of an hour would be a look or two."""

MAX_SECTIONS = 30
"""The most incidents of a cluster with a section of their own."""

_AGENTS = Regex("stagewatch.*")
"""The scrape jobs of node agents and of Slurm's agent."""


@dataclass(frozen=True, slots=True)
class RecoveryOptions(PeriodOptions):
    """Options of `stagewatch report recovery`."""

    slo: float = option(99.9, "availability to aim at, in percent", parse=number)
    cluster: str = option("", "only this cluster; all if empty")


@dataclass(frozen=True, slots=True)
class Asked:
    """The request for a report.  `budget` is the period of the error budget."""

    period: Period
    budget: Period
    slo: float = 99.9
    cluster: str = ""
    title: str = ""

    @property
    def judged(self) -> bool:
        """Whether the budget's period is long enough for a share of it to mean anything."""
        return self.budget.seconds >= JUDGED_SECONDS


def asked_of(options: RecoveryOptions) -> Asked:
    """The request that options make.  Raises `ConfigError`."""
    period, budget = options.periods()
    title = options.month or f"{minute(period.start)} to {minute(period.end)}"
    return Asked(period, budget, options.slo, options.cluster, title)


@dataclass(frozen=True, slots=True)
class Slo:
    """A service level objective (a ratio), and its result in seconds."""

    objective: float
    period: float
    """The period of the availability."""
    budget_period: float
    """The period of the error budget: a whole month, if one was asked for."""
    downtime: float
    unseen: float
    seen: bool
    """Whether any job was seen."""

    @property
    def budget(self) -> float:
        """The downtime that the objective allows."""
        return (1 - self.objective) * self.budget_period

    @property
    def left(self) -> float:
        """The rest of the budget; negative if it is overspent."""
        return self.budget - self.downtime

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or `undecided` if it depends on time in which nothing was seen, or if no
        job was seen."""
        if self.left < 0:
            return "missed"
        return "met" if self.seen and self.unseen <= self.left else "undecided"

    @property
    def availability(self) -> float | None:
        """Share of the time in which anything was seen."""
        looked_at = self.period - self.unseen
        return max(0.0, 1 - self.downtime / looked_at) if self.seen and looked_at > 0 else None


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """One cluster over the period."""

    cluster: str
    resolution: float
    incidents: Sequence[Phases]
    left_out: int
    slo: Slo
    node_hours_out: float
    stalled_gpu_hours: float | None
    interrupted_gpu_hours: float | None
    first_seen: float
    """When the first scrape was; the cluster is judged from then on."""

    @property
    def repairs(self) -> list[float]:
        """Downtimes of the incidents that hit a job, in seconds."""
        return [each.downtime.seconds for each in self.incidents if each.downtime]

    @property
    def sections(self) -> list[Phases]:
        """The incidents that have a section of their own."""
        return [each for each in self.incidents if each.has_section][:MAX_SECTIONS]

    @property
    def wasted_gpu_hours(self) -> float | None:
        """The sum of both kinds; None if neither is known."""
        kinds = (self.stalled_gpu_hours, self.interrupted_gpu_hours)
        known = [each for each in kinds if each is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Recovery:
    """The whole report."""

    asked: Asked
    clusters: Sequence[ClusterRecovery]


def make_recovery(api: PrometheusApi, asked: Asked) -> Recovery:
    """Ask the server.  Raises `StagewatchError`, also where nothing was scraped at all."""
    names = [asked.cluster] if asked.cluster else _clusters(api, asked.period)
    return Recovery(asked, [_cluster(api, asked, name) for name in names])


def _clusters(api: PrometheusApi, period: Period) -> list[str]:
    window = milliseconds(max(60.0, period.seconds))
    scrapes = f"count_over_time({select('up', job=_AGENTS)}[{window}])"
    clusters = api.query(f"count by (cluster) ({scrapes})", period.end)
    names = sorted(each.labels.get("cluster", "") for each in clusters)
    if not names:
        raise StagewatchError(
            f"no agent was scraped from {iso(period.start)} to {iso(period.end)}: is this the "
            "right server and the right period?"
        )
    return names


def _cluster(api: PrometheusApi, asked: Asked, cluster: str) -> ClusterRecovery:
    period = asked.period
    here = {"cluster": cluster}
    seen = _seen(api, cluster, period)
    step = max(600.0, seen[1] - seen[0] if len(seen) > 1 else 0.0)
    intervals = measure(api, cluster, (seen[-1], seen[len(seen) // 2], seen[0]), step)
    first = max(period.start, seen[0] - _step(period))
    period = Period(first, period.end)
    history = History(api, period, intervals=intervals, columns=SWEEP_COLUMNS)
    incidents = incidents_of(find_signs(history, cluster))
    close = sorted(incidents, key=lambda each: (not each.jobs, -each.start))[:MAX_INCIDENTS]
    looked_at = absorbed([phases_of(history, each, cluster) for each in close])
    wasted = history.growth("job:rl_wasted_gpu_seconds:total", here)
    idle = [job.without_gpus for each in looked_at for job in each.jobs]
    interrupted = [seconds for seconds in idle if seconds is not None]
    down = union(each.downtime for each in looked_at if each.downtime)
    return ClusterRecovery(
        cluster=cluster,
        resolution=history.grid.step,
        incidents=sorted(looked_at, key=lambda each: each.began),
        left_out=len(incidents) - len(close),
        slo=Slo(
            round(asked.slo / 100, 12),
            period.seconds,
            asked.budget.seconds,
            sum(each.seconds for each in down),
            _unseen_seconds(history, here),
            seen=any(history.most(each, here, "") for each in ("slurm_job_info", "rl_rank_up")),
        ),
        node_hours_out=_node_hours(incidents),
        stalled_gpu_hours=None if wasted is None else wasted / 3600,
        interrupted_gpu_hours=sum(interrupted) / 3600 if interrupted else None,
        first_seen=first,
    )


def _step(period: Period) -> float:
    return max(1.0, period.seconds / 1000)


def _seen(api: PrometheusApi, cluster: str, period: Period) -> list[float]:
    """Times at which agents were scraped, exact to a thousandth of the period."""
    step = _step(period)
    up = f"last_over_time({select('up', cluster=cluster, job=_AGENTS)}[{milliseconds(step)}])"
    tracks = api.query_range(f"count ({up})", period.start, period.end, step)
    if not tracks:
        raise StagewatchError(
            f"no agent of cluster {cluster!r} was scraped from {iso(period.start)} to "
            f"{iso(period.end)}"
        )
    return [when for when, _ in tracks[0].samples]


def _unseen_seconds(history: History, here: Labels) -> float:
    """Time in which no agent of the cluster was scraped."""
    lines = history.most("up", {**here, "job": _AGENTS}, "", "count")
    known = len(lines[0].known()) if lines else 0
    return (history.grid.count - known) * history.grid.step


def _node_hours(incidents: Sequence[Incident]) -> float:
    """Hours that nodes were out of service, each node once, by Slurm or by a silent agent."""
    out: dict[str, list[Period]] = {}
    for incident in incidents:
        for sign in incident.signs:
            if sign.kind in ("drain", "down", "fail", "silent") and sign.end > sign.start:
                out.setdefault(sign.node, []).append(Period(sign.start, sign.end))
    return sum(each.seconds for periods in out.values() for each in union(periods)) / 3600
