"""The queue: jobs and GPUs by partition, state and reason, and by user and account."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Metric, Samples, gauge
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.model import Job, Node, Records
from stagewatch.slurm.notation import ENDED_STATES, expand_or_none, total

JOBS = gauge("slurm_jobs", "Jobs that have not ended, array tasks counted one by one.", ("state",))
QUEUE_JOBS = gauge(
    "slurm_queue_jobs",
    "Jobs that have not ended; a job that waits in several partitions counts in all of them.",
    ("partition", "state", "reason"),
)
QUEUE_GPUS = gauge(
    "slurm_queue_gpus",
    "GPUs held by running jobs and requested by pending ones (any: no type was named).",
    ("partition", "state", "gpu_type"),
)
PENDING_AGE = gauge(
    "slurm_pending_age_seconds",
    "Time since the longest-waiting pending job was submitted or requeued.",
    ("partition", "reason"),
)
USER_JOBS = gauge(
    "slurm_user_jobs", "Jobs of the busiest users; the rest is other.", ("user", "state")
)
USER_GPUS = gauge(
    "slurm_user_gpus",
    "GPUs held (RUNNING) or requested (PENDING) by the busiest users; the rest is other.",
    ("user", "state"),
)
ACCOUNT_JOBS = gauge(
    "slurm_account_jobs",
    "Jobs of the busiest accounts; the rest is other.",
    ("account", "state"),
)
ACCOUNT_GPUS = gauge(
    "slurm_account_gpus",
    "GPUs held (RUNNING) or requested (PENDING) by the busiest accounts; the rest is other.",
    ("account", "state"),
)
_ALWAYS = ("PENDING", "RUNNING")
HOLDING = frozenset(
    (
        "RUNNING",
        "SUSPENDED",
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "STOPPED",
        "SIGNALING",
        "EXPEDITING",
    )
)
"""States in which a job has its GPUs."""
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"))
TOP = 50
"""Most users and accounts with their own series, by GPUs, then jobs."""
_MAX_REASONS = 64
_MAX_PAIRS = 5000
"""Most pairs of a partition and a reason."""


class QueueCollector(Collector):
    """Counts the jobs and GPUs of one snapshot of the queue."""

    def __init__(
        self,
        jobs: Source[Records[Job]],
        nodes: Source[Records[Node]] | None = None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._wall = wall

    def collect(self) -> Samples:
        """Fetch the queue and count it."""
        jobs = self._jobs.refresh()
        reading = self._nodes.keep_fresh() if self._nodes else None
        types = only_types(reading.data.items) if reading else {}
        return measure(jobs.items, now=self._wall(), types=types)


def only_types(nodes: Iterable[Node]) -> dict[str, str]:
    """The GPU types of nodes that have a single type, by node."""
    return {node.name: node.gpus[0].type for node in nodes if len(node.gpus) == 1}


def measure(
    jobs: Iterable[Job], *, now: float, top: int = TOP, types: Mapping[str, str] | None = None
) -> Samples:
    """Count the jobs of the queue; `now` is Unix time, for their ages.

    `types` gives a running job's GPU type by its node.  It is needed if Slurm counts GPUs without a
    type, as with gres/gpu alone in AccountingStorageTRES.
    """
    types = types or {}
    by_state: Counter[str] = Counter(dict.fromkeys(_ALWAYS, 0))
    queue: Counter[tuple[str, str, str]] = Counter()
    gpus: Counter[tuple[str, str, str]] = Counter()
    oldest: dict[tuple[str, str], int] = {}
    users, accounts = _Share(), _Share()
    for job in jobs:
        if job.state in ENDED_STATES:
            continue
        by_state[job.state] += job.tasks
        holds = gpus_held_or_wanted(job, types)
        for partition in job.partitions:
            queue[partition, job.state, job.reason] += job.tasks
            for kind, number in holds:
                gpus[partition, job.state, kind] += number
            if job.state == "PENDING" and job.submit is not None:
                key = (partition, job.reason)
                oldest[key] = min(oldest.get(key, job.submit), job.submit)
        held = total(holds)
        users.add(job.user, job.state, job.tasks, held)
        accounts.add(job.account, job.state, job.tasks, held)
    out = Samples()
    out.add_all(JOBS, by_state)
    kept = _kept_reasons(queue)
    folded: Counter[tuple[str, str, str]] = Counter()
    for (partition, state, reason), number in queue.items():
        folded[partition, state, reason if reason in kept else "other"] += number
    out.add_all(QUEUE_JOBS, folded)
    out.add_all(QUEUE_GPUS, gpus)
    for (partition, reason), submitted in sorted(oldest.items(), key=itemgetter(1), reverse=True):
        shown = reason if reason in kept else "other"  # the oldest comes last, and stays
        out.add(PENDING_AGE, max(0.0, now - submitted), partition, shown)
    users.write(out, USER_JOBS, USER_GPUS, top)
    accounts.write(out, ACCOUNT_JOBS, ACCOUNT_GPUS, top)
    return out


def gpus_held_or_wanted(job: Job, types: Mapping[str, str]) -> list[tuple[str, int]]:
    """GPUs by type that all tasks of a record have or wait for."""
    if not job.gpus:
        return []
    if job.state in HOLDING:
        return [
            (typed, held * job.tasks)
            for kind, number in job.gpus
            for typed, held in ([(kind, number)] if kind else _by_node(job, number, types))
        ]
    if job.state in WAITING:
        return [(kind or "any", number * job.tasks) for kind, number in job.gpus]
    return []


def _by_node(job: Job, number: int, types: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    """The types of GPUs that Slurm counts without a type, by their nodes."""
    nodes = expand_or_none(job.node_list)
    kinds = {types.get(node) or "unknown" for node in nodes}
    if len(kinds) == 1:
        return [(kinds.pop(), number)]
    counts: Counter[str] = Counter()
    for node in nodes:
        for kind, held in job.gpus_per_node:
            counts[kind or types.get(node) or "unknown"] += held
    return counts.items() if sum(counts.values()) == number else [("unknown", number)]


def _kept_reasons(queue: Mapping[tuple[str, str, str], int]) -> frozenset[str]:
    """The most frequent reasons; others become `other`."""
    reasons: Counter[str] = Counter()
    for (_, _, reason), number in queue.items():
        reasons[reason] += number
    partitions = len({partition for partition, _, _ in queue}) or 1
    most = max(1, min(_MAX_REASONS, _MAX_PAIRS // partitions))
    return frozenset(reason for reason, _ in reasons.most_common(most))


class _Share:
    """Jobs and GPUs by owner; only the busiest owners keep their names."""

    def __init__(self) -> None:
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._gpus: Counter[tuple[str, str]] = Counter()

    def add(self, owner: str, state: str, jobs: int, gpus: int) -> None:
        """Count one record."""
        owner = owner or "none"
        state = "RUNNING" if state in HOLDING else "PENDING" if state in WAITING else state
        self._jobs[owner, state] += jobs
        if gpus:
            self._gpus[owner, state] += gpus

    def write(self, out: Samples, jobs: Metric, gpus: Metric, top: int) -> None:
        """Add the samples, everything beyond the first `top` owners under `other`."""
        weight: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for place, counts in enumerate((self._gpus, self._jobs)):
            for (owner, _), number in counts.items():
                weight[owner][place] -= number
        kept = set(sorted(weight, key=lambda owner: (weight[owner], owner))[:top])
        for metric, counts in ((jobs, self._jobs), (gpus, self._gpus)):
            folded: Counter[tuple[str, str]] = Counter()
            for (owner, state), number in counts.items():
                folded[owner if owner in kept else "other", state] += number
            out.add_all(metric, folded)


SPEC = Declaration(
    name="slurm_queue",
    help="jobs and GPUs in the queue (squeue)",
    interval=15,
    options=NoOptions,
)
