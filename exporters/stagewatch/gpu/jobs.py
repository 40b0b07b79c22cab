"""Finds the Slurm job of every GPU, idle GPUs, and processes that outlive their job.

Slurm's numbers of GPUs are those of the device files (`/dev/nvidia3`), so they are matched with the
driver's minor number.  The numbers in CUDA_VISIBLE_DEVICES are never used: inside a job they count
from 0, whichever GPUs the job has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import option
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Metric, Samples, gauge
from stagewatch.gpu.directory import GpuDirectory, GpuFacts
from stagewatch.gpu.readings import GPU
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import Procfs, variables
from stagewatch.slurm import node_jobs

JOB_INFO = gauge(
    "gpu_job_info",
    "1 for a GPU that Slurm has given to a job, busy or not.",
    (*GPU, "job_id", "user"),
)
IDLE = gauge(
    "gpu_allocated_idle_seconds",
    "How long a GPU has been allocated to a job while no process holds it, since the agent first "
    "saw this; absent while a process holds it.",
    (*GPU, "job_id"),
)
ORPHAN = gauge(
    "gpu_orphaned_process_seconds",
    "How long a process has held a GPU after its job ended, since the agent first saw this.",
    (*GPU, "job_id", "pid"),
)

LOOK_AGAIN_SECONDS = 60.0
"""How long the GPUs of a job are cached; later steps may get more."""

MAX_PROCESSES = 64
"""Most processes of one job whose environment is read."""

Environs = Callable[[Sequence[int]], Mapping[int, Mapping[str, str]]]
"""The environments of processes; unreadable ones are missing."""


@dataclass(slots=True)
class Job:
    """A job on this node with its GPUs."""

    job_id: str
    user: str = ""
    minors: set[int] = field(default_factory=set)
    uuids: set[str] = field(default_factory=set)

    @property
    def placed(self) -> bool:
        """Whether the GPUs of the job are known."""
        return bool(self.minors or self.uuids)

    def has(self, gpu: GpuFacts) -> bool:
        """Whether the job has the GPU or MIG instance.

        A number means a whole GPU, so it never matches a MIG instance.
        """
        return gpu.uuid in self.uuids or (not gpu.mig and gpu.minor in self.minors)


def _as_written(job: node_jobs.PrologJob) -> Job:
    """The job as the prolog recorded it; UUIDs, if any, are its MIG instances."""
    return Job(job.job_id, job.user, set() if job.uuids else set(job.minors), {*job.uuids})


def from_cgroup(cgroup: node_jobs.CgroupJob, environs: Environs) -> Job | None:
    """A job by its processes; None if neither they nor the cgroup show its number.

    The cgroup is trustworthy, the environment is not: a process that names a different job from its
    cgroup is ignored.
    """
    job = Job(cgroup.job_id)
    processes = list(islice(cgroup.pids(), MAX_PROCESSES))
    read = environs([pid for _, pid in processes])
    for step, pid in processes:
        environ = read.get(pid, {})
        claimed = _job_id(environ)
        if not claimed or claimed != (job.job_id or claimed):
            continue
        job.job_id = claimed
        job.user = job.user or environ.get("SLURM_JOB_USER", "")
        devices = node_jobs.uuids(environ.get("CUDA_VISIBLE_DEVICES", ""))
        job.uuids |= devices
        if not devices:
            job.minors |= _numbers(environ, step)
    return job if job.job_id else None


def _job_id(variables: Mapping[str, str]) -> str:
    """The job id in an environment; empty for none."""
    job_id = variables.get("SLURM_JOB_ID", "")
    return job_id if re.fullmatch(r"[0-9]{1,20}", job_id) else ""


def _numbers(variables: Mapping[str, str], step: str) -> frozenset[int]:
    if "SLURM_STEP_GPUS" in variables:
        return node_jobs.numbers(variables["SLURM_STEP_GPUS"])
    # srun passes the batch script's environment on to all nodes, so that SLURM_JOB_GPUS holds the
    # GPUs of the first node everywhere.
    if step == "batch" or variables.get("SLURM_JOB_NUM_NODES") == "1":
        return node_jobs.numbers(variables.get("SLURM_JOB_GPUS", ""))
    return frozenset()


@dataclass(frozen=True, slots=True)
class GpuJobsOptions:
    """Options of the `gpu_jobs` collector."""

    prolog_dir: Path = option(
        Path("/run/stagewatch/jobs"),
        "directory in which the Slurm prolog records the GPUs of each job",
    )


class GpuJobsCollector(Collector):
    """Matches Slurm's jobs on this node with the driver's GPUs and their processes."""

    def __init__(
        self,
        gpus: GpuDirectory,
        proc: Procfs,
        files: Files,
        cgroups: node_jobs.SlurmCgroups,
        prolog_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gpus = gpus
        self._proc = proc
        self._files = files
        self._cgroups = cgroups
        self._prolog_dir = prolog_dir
        self._clock = clock
        self._since: dict[tuple[Metric, tuple[str, ...]], float] = {}
        """When the agent first saw an idle GPU or a process that outlived its job."""
        self._found: dict[Path, Job] = {}
        self._written_down: set[str] = set()
        self._looked = float("-inf")
        self._denied: set[int] = set()

    def collect(self) -> Samples:
        """Raises `NoData` on a node without Slurm or without GPUs."""
        prolog = node_jobs.read_prolog(self._prolog_dir)
        cgroups = self._cgroups.jobs()
        if prolog is None and cgroups is None:
            raise NoData("neither a Slurm prolog nor Slurm cgroups on this node")
        gpus = self._gpus.gpus()
        if not gpus:
            raise NoData("no GPU on this node, or the collector `gpu` is off")
        jobs = self._jobs(cgroups or [])
        jobs |= {job_id: _as_written(job) for job_id, job in (prolog or {}).items()}
        self._place_by_processes(jobs)
        running = self._running(prolog, jobs)
        conditions: list[tuple[Metric, tuple[str, ...]]] = []
        out = Samples()
        for gpu in gpus:
            for job in jobs.values():
                if job.has(gpu):
                    out.add(JOB_INFO, 1, *gpu.labels, job.job_id, job.user)
                    if gpu.processes == 0:
                        conditions.append((IDLE, (*gpu.labels, job.job_id)))
            for pid in gpu.memory_by_pid:
                job_id = self._job_of(pid)
                if job_id and job_id not in running:
                    conditions.append((ORPHAN, (*gpu.labels, job_id, str(pid))))
        out.denied = len(self._denied)
        now = self._clock()
        self._since = {condition: self._since.get(condition, now) for condition in conditions}
        for (metric, labels), since in self._since.items():
            out.add(metric, now - since, *labels)
        return out

    def _running(self, prolog: Collection[str] | None, jobs: Mapping[str, Job]) -> set[str]:
        """The jobs that have not ended.

        The epilog marks the end of a job that the prolog recorded, since the cgroup remains while a
        process does. A job that started before the prolog was configured ends with its cgroup.
        """
        if prolog is None:
            return set(jobs)
        self._written_down = (self._written_down & jobs.keys()) | set(prolog)
        return set(prolog) | (jobs.keys() - self._written_down)

    def _jobs(self, cgroups: list[node_jobs.CgroupJob]) -> dict[str, Job]:
        """Jobs by their cgroups; a job's GPUs are cached for a while."""
        if self._clock() - self._looked >= LOOK_AGAIN_SECONDS:
            self._looked = self._clock()
            self._found.clear()
            self._denied.clear()
        paths = {cgroup.path for cgroup in cgroups}
        self._found = {path: job for path, job in self._found.items() if path in paths}
        jobs: dict[str, Job] = {}
        for cgroup in cgroups:
            job = self._found.get(cgroup.path) or from_cgroup(cgroup, self._environs)
            if job is None:
                continue
            if job.placed:
                self._found[cgroup.path] = job
            same = jobs.setdefault(job.job_id, Job(job.job_id, job.user))
            same.minors |= job.minors
            same.uuids |= job.uuids
        return jobs

    def _place_by_processes(self, jobs: Mapping[str, Job]) -> None:
        """Give a job the GPUs that its processes hold, if no other source names its GPUs."""
        unplaced = {job.job_id: job for job in jobs.values() if not job.placed}
        if not unplaced:
            return
        for gpu in self._gpus.gpus():
            for pid in gpu.memory_by_pid:
                job = unplaced.get(self._job_of(pid))
                if job is not None:
                    job.uuids.add(gpu.uuid)

    def _job_of(self, pid: int) -> str:
        """The job that a process belongs or belonged to; empty if Slurm did not start it."""
        for path in self._proc.cgroups(pid):
            cgroup = node_jobs.parse_slurm_cgroup(path)
            if cgroup is not None and cgroup.job_id:
                return cgroup.job_id
        return _job_id(self._environs([pid]).get(pid, {}))

    def _environs(self, pids: Sequence[int]) -> Mapping[int, Mapping[str, str]]:
        read = self._files.read("environ", pids, ("SLURM_", "CUDA_VISIBLE_DEVICES="))
        denied = {pid for pid, environ in read.items() if environ is None}
        self._denied = (self._denied - read.keys()) | denied
        return {pid: variables(environ or b"") for pid, environ in read.items()}


SPEC = Declaration(
    name="gpu_jobs",
    help="the Slurm job of each GPU, GPUs given but idle, processes that outlive their job",
    interval=5.0,
    options=GpuJobsOptions,
)
