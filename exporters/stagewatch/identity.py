"""Who a process is: its job, rank and sizes, from the variables that launchers set.

Trainers and the node agent read the same variables in the same order, so both import this module;
it uses the standard library alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

# First hit wins.  torchrun comes before Slurm: under `srun torchrun` SLURM_PROCID counts nodes.
JOB_ID = (
    "STAGEWATCH_JOB_ID",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "FLUX_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "JOBSET_NAME",
)
FRAMEWORK_RANK = ("STAGEWATCH_RANK", "RANK")
RANK = (
    *FRAMEWORK_RANK,
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
    "JOB_COMPLETION_INDEX",
)
LOCAL_RANK = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)
WORLD_SIZE = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "FLUX_JOB_SIZE",
    "SLURM_NTASKS",
)

VARIABLES = (
    *(*JOB_ID, *RANK, *LOCAL_RANK, *WORLD_SIZE),
    *("STAGEWATCH_ROLE", "CUDA_VISIBLE_DEVICES", "RAY_JOB_ID", "RAY_CLUSTER_NAME"),
    *("KUBERNETES_SERVICE_HOST", "HOSTNAME", "TORCHELASTIC_RUN_ID"),
)
"""Every variable that `identify` reads."""

# What operators append to the job's name: Kubeflow's PyTorchJob and MPIJob, then its TrainJob.
_POD = re.compile(r"-(?:(?:master|worker|launcher)-\d+|node-\d+-\d+)$")


@dataclass(frozen=True, slots=True)
class Identity:
    """One rank of one job; -1 stands for an unknown number."""

    job_id: str
    role: str
    rank: int
    local_rank: int
    world_size: int
    framework: str
    gpu: str
    """The GPU's UUID where a variable gives it; an index is local to the job and says nothing."""


def identify(
    environ: Mapping[str, str] = os.environ,
    *,
    role: str | None = None,
    job_id: str | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
    world_size: int | None = None,
    framework: str = "",
    gpu: str | None = None,
    session: int | None = None,
) -> Identity:
    """The identity from the arguments, completed from the environment.

    Without any launcher's variable the session names the job, which processes started by one shell
    command share; `session` is that of another process.  A Ray worker inherits the variables of
    whatever started Ray on its node, so only the numbers that its framework sets are its own.
    """
    ray = in_ray(environ)
    local = _number(local_rank, environ, LOCAL_RANK[:1] if ray else LOCAL_RANK)
    return Identity(
        job_id=str(job_id or _job(environ) or f"session-{session or os.getsid(0)}"),
        role=str(role or environ.get("STAGEWATCH_ROLE") or "train"),
        rank=max(_number(rank, environ, rank_variables(environ)), 0),
        local_rank=local,
        world_size=_number(world_size, environ, WORLD_SIZE[:1] if ray else WORLD_SIZE),
        framework=framework,
        gpu=gpu if gpu is not None else _gpu(environ.get("CUDA_VISIBLE_DEVICES", ""), local),
    )


def in_ray(environ: Mapping[str, str]) -> bool:
    """Whether the process is a worker of Ray."""
    return "RAY_JOB_ID" in environ


def rank_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that may hold the process's rank, in order of precedence."""
    return FRAMEWORK_RANK if in_ray(environ) else RANK


def _job(environ: Mapping[str, str]) -> str | None:
    job_id = _first(environ, JOB_ID)
    if job_id is None and environ.get("RAY_JOB_ID"):
        # Every Ray cluster counts its jobs from 01000000; KubeRay names the cluster.
        cluster = environ.get("RAY_CLUSTER_NAME")
        job_id = f"{cluster}-{environ['RAY_JOB_ID']}" if cluster else environ["RAY_JOB_ID"]
    if job_id is None and "KUBERNETES_SERVICE_HOST" in environ:
        job_id = _pod_job(environ.get("HOSTNAME", ""), environ.get("JOB_COMPLETION_INDEX", ""))
    if (
        job_id is None and environ.get("TORCHELASTIC_RUN_ID", "none") != "none"
    ):  # torchrun's default
        job_id = environ["TORCHELASTIC_RUN_ID"]
    return job_id


def _pod_job(hostname: str, index: str) -> str | None:
    """The job's name within the name of one of its pods; None for an unknown kind of pod."""
    operator = _POD.search(hostname)
    if operator is not None:
        return hostname[: operator.start()]
    if index and hostname.endswith(f"-{index}"):  # an indexed Job, also one of a JobSet
        return hostname.removesuffix(f"-{index}")
    return None


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def _number(given: int | None, environ: Mapping[str, str], names: tuple[str, ...]) -> int:
    if given is not None:
        return int(given)
    text = _first(environ, names) or ""
    return int(text) if text.isascii() and text.isdigit() else -1


def _gpu(visible: str, local_rank: int) -> str:
    devices = [device for device in visible.split(",") if device.startswith(("GPU-", "MIG-"))]
    if len(devices) == 1:
        return devices[0]
    return devices[local_rank] if 0 <= local_rank < len(devices) else ""
