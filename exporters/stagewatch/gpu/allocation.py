"""Which job each GPU belongs to, put together from what several sources say.

Slurm's numbers are those of the device files (`/dev/nvidia3`), so they are matched with the
driver's minor number.  Numbers in CUDA_VISIBLE_DEVICES are never used: inside a job they count
from 0, whatever GPUs the job has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stagewatch.gpu.directory import GpuFacts
from stagewatch.slurm.cgroups import CgroupJob
from stagewatch.slurm.prolog import PrologJob, numbers, uuids

MAX_PROCESSES = 64
"""Most processes of one job whose environment is looked into."""

Environ = Callable[[int], Mapping[str, str] | None]


@dataclass(slots=True)
class Job:
    """A job on this node with the GPUs it was given."""

    job_id: str
    user: str = ""
    minors: set[int] = field(default_factory=set)
    uuids: set[str] = field(default_factory=set)

    @property
    def placed(self) -> bool:
        """Whether any of its GPUs is known."""
        return bool(self.minors or self.uuids)

    def has(self, gpu: GpuFacts) -> bool:
        """Whether the GPU or MIG instance is among them.

        A number stands for a whole GPU, so it never claims one of its MIG instances.
        """
        return gpu.uuid in self.uuids or (not gpu.mig and gpu.minor in self.minors)


def from_prolog(jobs: Iterable[PrologJob]) -> dict[str, Job]:
    """Jobs as the prolog wrote them down."""
    return {
        job.job_id: Job(job.job_id, job.user, set() if job.uuids else set(job.minors), {*job.uuids})
        for job in jobs
    }


def from_cgroup(cgroup: CgroupJob, environ: Environ) -> Job | None:
    """A job as its processes and its device list say; None where its number cannot be told.

    The kernel vouches for the cgroup, nobody for the environment: a process that names another
    job than its cgroup does is not believed.
    """
    job = Job(cgroup.job_id)
    for count, (step, pid) in enumerate(cgroup.pids()):
        if count >= MAX_PROCESSES:
            break
        variables = environ(pid) or {}
        claimed = variables.get("SLURM_JOB_ID", "")
        if not claimed.isdigit() or (job.job_id and claimed != job.job_id):
            continue
        job.job_id = claimed
        job.user = job.user or variables.get("SLURM_JOB_USER", "")
        devices = uuids(variables.get("CUDA_VISIBLE_DEVICES", ""))
        job.uuids |= devices
        if not devices:
            job.minors |= _numbers(variables, step)
    if not job.job_id:
        return None
    if not job.placed:
        job.minors |= cgroup.minors()
    return job


def _numbers(variables: Mapping[str, str], step: str) -> frozenset[int]:
    if "SLURM_STEP_GPUS" in variables:
        return numbers(variables["SLURM_STEP_GPUS"])
    # srun hands the batch script's environment on to all nodes, so that SLURM_JOB_GPUS holds the
    # GPUs of the first node everywhere.
    if step == "batch" or variables.get("SLURM_JOB_NUM_NODES") == "1":
        return numbers(variables.get("SLURM_JOB_GPUS", ""))
    return frozenset()
