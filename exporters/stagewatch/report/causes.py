"""What cost the most GPU-hours without work to show for it: the jobs, nodes and alerts behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.prometheus.api import PrometheusApi, Series
from stagewatch.prometheus.selectors import select
from stagewatch.report.attempts import Attempt
from stagewatch.report.history import Labels
from stagewatch.report.ledger import LOST, Key, Ledger, window
from stagewatch.report.periods import Period, minute

CAUSES = {
    "stalled": "Stalled jobs",
    "slowed": "Slow ranks",
    LOST: "Work lost with a run",
    "waiting": "Waiting for the first rank",
    "init": "Starting ranks",
    "checkpoint": "Checkpoints",
    "idle": "Idle ranks",
    "unused": "Idle GPUs of jobs without the client",
    "cleanup": "Ending jobs",
    "drained": "Drained nodes",
    "down": "Nodes down",
}
"""The states that are causes, in words.  Free and reserved GPUs accuse nobody, and `busy` and
`unobserved` may have been work."""

KINDS = {"drain": "drained", "down": "down", "fail": "drained"}
"""The state that Slurm's kind of absence leads to; a node marked FAIL takes no jobs, but runs."""

UNNAMED = "no rank named"


@dataclass(slots=True)
class Cause:
    """A state and its reason, with GPU-seconds by place: a job with its rank, or a node."""

    state: str
    reason: str
    places: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def seconds(self) -> float:
        """GPU-seconds in all."""
        return sum(self.places.values())

    @property
    def words(self) -> str:
        """As in `Stalled jobs: process gone`."""
        what = CAUSES[self.state]
        return f"{what}: {self.reason}" if self.reason else what

    @property
    def worst(self) -> list[tuple[str, float]]:
        """Its places, the costliest first."""
        return sorted(self.places.items(), key=lambda each: (-each[1], each[0]))


_Weights = Mapping[tuple[str, str], Mapping[tuple[str, str], float]]
"""Weights of (reason, place) by cluster and job, or by cluster and state of nodes."""


def find_causes(
    api: PrometheusApi,
    ledger: Ledger,
    attempts: Sequence[Attempt],
    cluster: Labels,
) -> list[Cause]:
    """All causes, the costliest first.  `attempts` are those whose lost work has been moved."""
    causes: dict[tuple[str, str], Cause] = {}
    by_start: dict[float, dict[Key, float]] = {}
    for key, seconds in ledger.rows.items():
        if key.state in CAUSES and key.state != LOST and seconds > 0:
            by_start.setdefault(key.start, {})[key] = seconds

    def add(state: str, reason: str, place: str, seconds: float) -> None:
        causes.setdefault((state, reason), Cause(state, reason)).places[place] += seconds

    for each in ledger.bins:
        rows = by_start.get(each.start, {})
        if not rows:
            continue
        named = {
            "stalled": _culprits(api, each, cluster),
            "slowed": _slow(api, each, cluster),
        }
        nodes = _nodes(api, each, cluster)
        for key, seconds in rows.items():
            job = key.cluster, key.job_id
            if key.allocated:
                nobody = UNNAMED if key.state == "stalled" else ""
                behind = named.get(key.state, {}).get(job) or {(nobody, _job(key)): 1.0}
            else:
                behind = nodes.get((key.cluster, key.state)) or {("", "nodes not named"): 1.0}
            whole = sum(behind.values())
            for (reason, place), weight in behind.items():
                add(key.state, reason, place, seconds * weight / whole)
    moved = _lost_by_job(ledger)
    for attempt in attempts:
        job = attempt.cluster, attempt.job_id
        mine = {each: each.lost or 0.0 for each in attempts if (each.cluster, each.job_id) == job}
        whole = sum(mine.values())
        if whole and moved.get(job):
            seconds = moved[job] * mine[attempt] / whole
            place = f"job {attempt.job_id}, {minute(attempt.ended)}"
            add(LOST, attempt.how, place, seconds)
    return sorted(causes.values(), key=lambda each: (-each.seconds, each.words))


def _job(key: Key) -> str:
    return f"job {key.job_id}" if key.job_id else "jobs beyond the agent's limits"


def _lost_by_job(ledger: Ledger) -> dict[tuple[str, str], float]:
    lost: dict[tuple[str, str], float] = {}
    for key, seconds in ledger.rows.items():
        if key.state == LOST:
            job = key.cluster, key.job_id
            lost[job] = lost.get(job, 0.0) + seconds
    return lost


def _culprits(api: PrometheusApi, each: Period, cluster: Labels) -> _Weights:
    """Verdicts on stalled jobs, by evidence and rank."""
    samples = f"count_over_time({select('job:rl_stall:culprit', **cluster)}[{window(each)}])"
    by = "cluster, job_id, role, rank, node, evidence"
    return _weights(api.query(f"sum by ({by}) ({samples})", each.end), "evidence", _rank)


def _slow(api: PrometheusApi, each: Period, cluster: Labels) -> _Weights:
    """Ranks and nodes that slowed their jobs down, by the alert."""
    labels = {**cluster, "alertname": ("SlowRank", "SlowNode"), "alertstate": "firing"}
    samples = f"count_over_time({select('ALERTS', **labels)}[{window(each)}])"
    by = "cluster, job_id, role, rank, node"
    return _weights(api.query(f"sum by ({by}) ({samples})", each.end), "evidence", _rank)


def _nodes(api: PrometheusApi, each: Period, cluster: Labels) -> _Weights:
    """Nodes out of service by class of reason: samples times GPUs, by cluster and state."""
    out = f"count_over_time({select('slurm_node_unavailable_info', **cluster)}[{window(each)}])"
    gpus = f"last_over_time({select('slurm_node_gpus', **cluster)}[{window(each)}])"
    query = (
        f"sum by (cluster, node, kind, reason_class) ({out}) "
        f"* on (cluster, node) group_left () sum by (cluster, node) ({gpus})"
    )

    def node(labels: Mapping[str, str]) -> tuple[str, str]:
        return KINDS.get(labels.get("kind", ""), "drained"), labels.get("node", "")

    return _weights(api.query(query, each.end), "reason_class", node)


def _rank(labels: Mapping[str, str]) -> tuple[str, str]:
    """The job of a rank, and the rank as a place."""
    job, role, rank, node = (labels.get(name, "") for name in ("job_id", "role", "rank", "node"))
    who = " ".join(filter(None, (role, rank)))
    return job, f"job {job}: {who}" + (f" on {node}" if node else "")


def _weights(
    series: Iterable[Series], reason: str, place: Callable[[Mapping[str, str]], tuple[str, str]]
) -> _Weights:
    weights: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for found in series:
        owner, where = place(found.labels)
        mine = weights.setdefault((found.labels.get("cluster", ""), owner), {})
        why = found.labels.get(reason, "").replace("_", " ")
        mine[why, where] = mine.get((why, where), 0.0) + found.value
    return weights
