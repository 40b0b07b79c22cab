"""The facts on the page of the Slurm agent: nodes, GPUs, queue and jobs as plain values.

They come from the agent's series: no further request to the controller.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagewatch.web.series import Series, natural

GPU_STATES = ("allocated", "free", "free_drained", "down")


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One node; `kind` is drain, down or fail if it takes no jobs, else empty."""

    name: str
    state: str
    flags: Sequence[str]
    kind: str
    reason: str
    reason_user: str
    since: float | None
    """Unix time."""
    gpus: str

    @property
    def look(self) -> str:
        """The class of its square: its problem, or else how busy it is."""
        if self.kind or "NOT_RESPONDING" in self.flags:
            return "drain" if self.kind == "drain" else "down"
        states = {"ALLOCATED": "full", "MIXED": "part", "IDLE": "idle"}
        return states.get(self.state, "down" if self.state in ("DOWN", "ERROR") else "other")


@dataclass(frozen=True, slots=True)
class GPUType:
    """GPUs of one type by state."""

    name: str
    states: Mapping[str, int]

    @property
    def total(self) -> int:
        """The number of configured GPUs."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class Partition:
    """The queue of one partition."""

    name: str
    running: int
    pending: int
    other: int
    gpus_held: int
    gpus_wanted: int
    oldest: float | None
    """Seconds that the longest-waiting job has waited."""
    why: str
    """The reason that Slurm gives for that job."""
    reasons: Sequence[tuple[str, int]]
    """Pending jobs by reason, the most frequent first."""


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A running job with GPUs."""

    job_id: str
    user: str
    partition: str
    gpus: int
    nodes: Sequence[str]
    started: float | None
    """Unix time."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as its controller sees it."""

    nodes: Sequence[ClusterNode]
    gpus: Sequence[GPUType]
    partitions: Sequence[Partition]
    jobs: Sequence[ClusterJob]

    @property
    def troubled(self) -> list[ClusterNode]:
        """The nodes that take no jobs or do not answer; failed ones first."""
        troubled = [node for node in self.nodes if node.look in ("down", "drain")]
        return sorted(troubled, key=lambda node: node.look != "down")

    def looks(self) -> list[tuple[str, int]]:
        """The number of nodes by class."""
        order = ("down", "drain", "full", "part", "idle", "other")
        counts = Counter(node.look for node in self.nodes)
        return [(look, counts[look]) for look in order if counts[look]]

    def gpus_in(self, state: str) -> int:
        """GPUs of all types in one state."""
        return sum(kind.states.get(state, 0) for kind in self.gpus)

    def longest_waiting(self) -> Partition | None:
        """The partition with the job that has waited the longest."""
        waiting = [partition for partition in self.partitions if partition.oldest is not None]
        return max(waiting, key=lambda partition: partition.oldest or 0.0, default=None)


def cluster_of(series: Series) -> ClusterFacts:
    """The facts of this moment."""
    return ClusterFacts(_nodes(series), _gpus(series), _partitions(series), _jobs(series))


def _nodes(series: Series) -> list[ClusterNode]:
    flags = defaultdict(list)
    for labels, _ in series.of("slurm_node_flag"):
        flags[labels["node"]].append(labels["flag"])
    gpus = defaultdict(list)
    for labels, number in series.of("slurm_node_gpus"):
        gpus[labels["node"]].append(f"{number:.0f} {labels['gpu_type']}")
    out = series.labels("slurm_node_unavailable_info", ("node",))
    since = series.by("slurm_node_unavailable_since_timestamp_seconds", ("node",))
    states = {labels["node"]: labels["state"] for labels, _ in series.of("slurm_node_state")}
    return [
        ClusterNode(
            name=name,
            state=states[name],
            flags=flags[name],
            kind=out.get((name,), {}).get("kind", ""),
            reason=out.get((name,), {}).get("reason", ""),
            reason_user=out.get((name,), {}).get("user", ""),
            since=since.get((name,)),
            gpus=", ".join(gpus[name]),
        )
        for name in sorted(states, key=lambda name: natural((name,)))
        if states[name] != "FUTURE"
    ]


def _gpus(series: Series) -> list[GPUType]:
    types: dict[str, dict[str, int]] = defaultdict(dict)
    for labels, number in series.of("slurm_cluster_gpus"):
        types[labels["gpu_type"]][labels["state"]] = int(number)
    return [GPUType(name, types[name]) for name in sorted(types)]


def _partitions(series: Series) -> list[Partition]:
    jobs: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for labels, number in series.of("slurm_queue_jobs"):
        jobs[labels["partition"]][labels["state"]] += int(number)
        if labels["state"] == "PENDING":
            reasons[labels["partition"]][labels["reason"]] += int(number)
    gpus: Counter[tuple[str, str]] = Counter()
    for labels, number in series.of("slurm_queue_gpus"):
        held = "wanted" if labels["state"] == "PENDING" else "held"
        gpus[labels["partition"], held] += int(number)
    ages: dict[str, tuple[float, str]] = {}
    for labels, seconds in series.of("slurm_pending_age_seconds"):
        oldest = (seconds, labels["reason"])
        ages[labels["partition"]] = max(ages.get(labels["partition"], oldest), oldest)
    names = {labels["partition"] for labels, _ in series.of("slurm_partition_nodes")}
    return [
        Partition(
            name=name,
            running=jobs[name]["RUNNING"],
            pending=jobs[name]["PENDING"],
            other=sum(jobs[name].values()) - jobs[name]["RUNNING"] - jobs[name]["PENDING"],
            gpus_held=gpus[name, "held"],
            gpus_wanted=gpus[name, "wanted"],
            oldest=ages[name][0] if name in ages else None,
            why=ages[name][1] if name in ages else "",
            reasons=reasons[name].most_common(3),
        )
        for name in sorted(names | jobs.keys())
    ]


def _jobs(series: Series) -> list[ClusterJob]:
    gpus = series.by("slurm_job_gpus", ("job_id",))
    started = series.by("slurm_job_start_timestamp_seconds", ("job_id",))
    nodes = defaultdict(list)
    for labels, _ in series.of("slurm_job_node"):
        nodes[labels["job_id"]].append(labels["node"])
    jobs = [
        ClusterJob(
            job_id=labels["job_id"],
            user=labels["user"],
            partition=labels["partition"],
            gpus=int(gpus.get((labels["job_id"],), 0)),
            nodes=nodes[labels["job_id"]],
            started=started.get((labels["job_id"],)),
        )
        for labels, _ in series.of("slurm_job_info")
    ]
    return sorted(jobs, key=lambda job: (-job.gpus, natural((job.job_id,))))
