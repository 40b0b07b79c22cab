"""Running GPU jobs: who they belong to, and which nodes and GPUs they have."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import integer, option
from stagewatch.core.exposition import Samples, gauge
from stagewatch.core.words import ranges
from stagewatch.slurm.cluster import Cluster, records_of
from stagewatch.slurm.collectors.queue import HOLDING
from stagewatch.slurm.model import Job, Node
from stagewatch.slurm.notation import expand_or_none, total

INFO = gauge(
    "slurm_job_info",
    "1 for a running job with GPUs; if there are too many jobs, those with the most GPUs.",
    ("job_id", "array_job_id", "user", "account", "partition"),
)
GPUS = gauge("slurm_job_gpus", "GPUs a running job holds, on all its nodes.", ("job_id",))
NODE = gauge(
    "slurm_job_node",
    "1 for each node of a running job with GPUs; gpus are its GPU indices there, known if no other "
    "job has GPUs of the node.",
    ("job_id", "node", "gpus"),
)
START = gauge(
    "slurm_job_start_timestamp_seconds",
    "When a running job with GPUs started, as Unix time; for a requeued job, its present run.",
    ("job_id",),
)
COMPLETING = gauge(
    "slurm_job_completing_since_timestamp_seconds",
    "When a job ended that is still COMPLETING, as Unix time; jobs without GPUs appear after a "
    "minute. If there are too many, those that have taken longest.",
    ("job_id", "user", "account", "partition"),
)
PREEMPTED = gauge(
    "slurm_job_preempted_since_timestamp_seconds",
    "When Slurm signalled a job that it is preempted, as Unix time, while the job uses its grace "
    "time (GraceTime of its partition or QOS). If there are too many, jobs with GPUs first.",
    ("job_id", "user", "account", "partition"),
)
HIDDEN = gauge(
    "slurm_jobs_without_series",
    "Running jobs with GPUs beyond the limit: boards do not show whose their GPUs are.",
)

_SHORT_SECONDS = 60.0
"""For which COMPLETING of a job without GPUs is not told: most are done by then."""


MAX_JOB_NODES = 5000
"""Pairs of a job and a node that get series, at most."""


@dataclass(frozen=True, slots=True)
class JobsOptions:
    """Options of the jobs collector."""

    max_jobs: int = option(1000, "most jobs with their own series", parse=integer)


class JobsCollector(Collector):
    """Joins running jobs of the queue with their nodes and GPUs."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_jobs: int = 1000,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._wall = wall
        self._max_jobs = max_jobs

    def collect(self) -> Samples:
        """Read the queue, and wait for no answer about the nodes."""
        jobs = self._cluster.jobs.refresh().items
        out = measure(jobs, records_of(self._cluster.nodes.keep_fresh()), self._max_jobs)
        measure_completing(out, jobs, now=self._wall(), most=self._max_jobs)
        measure_preempted(out, jobs, most=self._max_jobs)
        return out


def measure(jobs: Iterable[Job], nodes: Iterable[Node], max_jobs: int = 1000) -> Samples:
    """Count running GPU jobs."""
    running = sorted(
        (job for job in jobs if job.state in HOLDING and job.gpus and job.node_list),
        key=lambda job: (-total(job.gpus), job.job_id),
    )
    placed = {job.job_id: expand_or_none(job.node_list) for job in running}
    indices = _indices(running, placed, nodes)
    out = Samples()
    pairs = 0
    shown = running[:max_jobs]
    for job in shown:
        array = job.array_job_id or ""
        out.add(INFO, 1, job.job_id, array, job.user, job.account, job.partition)
        out.add(GPUS, total(job.gpus), job.job_id)
        out.add(START, job.start, job.job_id)
        for name in placed[job.job_id]:
            if pairs < MAX_JOB_NODES:
                pairs += 1
                out.add(NODE, 1, job.job_id, name, ranges(indices.get((job.job_id, name), ())))
    out.add(HIDDEN, len(running) - len(shown))
    return out


def measure_completing(out: Samples, jobs: Iterable[Job], *, now: float, most: int) -> None:
    """Export since when jobs are COMPLETING; `now` is Unix time.

    EndTime in squeue is then the moment when Slurm began to end the job.
    """
    completing = [
        (job.end, job)
        for job in jobs
        if job.state == "COMPLETING"
        and job.end is not None
        and (job.gpus or now - job.end > _SHORT_SECONDS)
    ]
    for end, job in sorted(completing, key=itemgetter(0))[:most]:
        out.add(COMPLETING, end, job.job_id, job.user, job.account, job.partition)


def measure_preempted(out: Samples, jobs: Iterable[Job], *, most: int) -> None:
    """Export since when jobs that still run are preempted.

    A time before the start of this run belongs to an earlier run.
    """
    preempted = [
        (not job.gpus, job.preempted, job)
        for job in jobs
        if job.state in HOLDING and job.preempted is not None and job.preempted >= (job.start or 0)
    ]
    for _, since, job in sorted(preempted, key=itemgetter(0, 1))[:most]:
        out.add(PREEMPTED, since, job.job_id, job.user, job.account, job.partition)


def _indices(
    running: Collection[Job], placed: Mapping[int, tuple[str, ...]], nodes: Iterable[Node]
) -> Mapping[tuple[int, str], tuple[int, ...]]:
    """Certain GPU indices by job and node: of nodes that no other GPU job uses."""
    sharers = Counter(name for job in running for name in placed[job.job_id])
    allocated = {
        node.name: tuple(sorted(index for gpus in node.gpus for index in gpus.indices))
        for node in nodes
    }
    certain: dict[tuple[int, str], tuple[int, ...]] = {}
    for job in running:
        names = placed[job.job_id]
        alone = {
            (job.job_id, name): allocated[name]
            for name in names
            if sharers[name] == 1 and name in allocated
        }
        # Another job may hold GPUs that we do not know: the numbers must fit.
        rest = total(job.gpus) - sum(map(len, alone.values()))
        if rest == 0 if len(alone) == len(names) else rest >= len(names) - len(alone):
            certain |= alone
    return certain


SPEC = Declaration(
    name="slurm_jobs",
    help="running GPU jobs with their nodes and GPUs",
    interval=15,
    options=JobsOptions,
)
