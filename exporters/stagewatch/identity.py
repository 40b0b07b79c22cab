"""The identity of a process: its job, rank and sizes, from the variables that launchers set.

Trainers and the node agent read the same variables in the same order, so both import this module;
it uses the standard library only.
"""

from __future__ import annotations

import os
import re
from binascii import crc32
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

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

JOB_NAME = ("STAGEWATCH_JOB_NAME", "SLURM_JOB_NAME", "FLUX_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME")
"""The user's name for the job: runs of the same name are compared with each other."""

VARIABLES = (
    *(*JOB_ID, *RANK, *LOCAL_RANK, *WORLD_SIZE),
    *("STAGEWATCH_ROLE", "CUDA_VISIBLE_DEVICES", "RAY_JOB_ID", "RAY_CLUSTER_NAME"),
    *("KUBERNETES_SERVICE_HOST", "HOSTNAME", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"),
    *("PMIX_NAMESPACE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "STAGEWATCH_RUN_ID"),
    "HYDI_CONTROL_FD",
)
"""Every variable that `identify` reads."""

# What operators append to the job's name: Kubeflow's PyTorchJob and MPIJob, then its TrainJob.
_POD = re.compile(r"-(?:(?:master|worker|launcher)-\d+|node-\d+-\d+)$")

# torchrun gives its ranks files in a directory that it has made for itself, RUN-ID_RANDOM; see
# DefaultLogsSpecs in torch/distributed/elastic/multiprocessing/api.py.
_UUID = re.compile(r"([0-9a-f]{8})-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
"""What PyTorch makes up as the id of a rendezvous."""
_TORCHRUN = re.compile(r"/none_(\w{8})/attempt_\d+/\d+/error\.json$")


class Identity(NamedTuple):
    """One rank of one job; -1 stands for an unknown number."""

    job_id: str
    role: str
    rank: int
    local_rank: int
    world_size: int
    framework: str
    gpu: str
    """The GPU's UUID if a variable gives it; an index is local to the job, so it does not count."""


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

    The job's id is that of the scheduler, else that of the launcher, else the session, which
    processes started by one shell share; `session`: that of another process.  A Ray worker inherits
    the variables of the process that started Ray on its node, so only the numbers that its
    framework sets are its own."""
    ray = in_ray(environ)
    local = _number(local_rank, environ, LOCAL_RANK[:1] if ray else LOCAL_RANK)
    session = os.getsid(0) if session is None else session  # 0: begun outside of our container
    return Identity(
        job_id=str(job_id or _job(environ, session) or _session(session)),
        role=str(role or environ.get("STAGEWATCH_ROLE") or "train"),
        rank=max(_number(rank, environ, rank_variables(environ)), 0),
        local_rank=local,
        world_size=_number(world_size, environ, WORLD_SIZE[:1] if ray else WORLD_SIZE),
        framework=framework,
        gpu=gpu if gpu is not None else _gpu(environ.get("CUDA_VISIBLE_DEVICES", ""), local),
    )


def job_name(environ: Mapping[str, str] = os.environ) -> str:
    """The user's name for the job; empty if no launcher sets it."""
    return _first(environ, JOB_NAME) or ""


def in_ray(environ: Mapping[str, str]) -> bool:
    """Whether the process is a worker of Ray."""
    return "RAY_JOB_ID" in environ


def rank_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that may hold the process's rank, in order of precedence."""
    return FRAMEWORK_RANK if in_ray(environ) else RANK


def _job(environ: Mapping[str, str], session: int) -> str | None:
    job_id = _first(environ, JOB_ID)
    if job_id is None and environ.get("RAY_JOB_ID"):
        # Every Ray cluster counts its jobs from 01000000; KubeRay names the cluster.
        cluster = environ.get("RAY_CLUSTER_NAME")
        job_id = f"{cluster}-{environ['RAY_JOB_ID']}" if cluster else environ["RAY_JOB_ID"]
    if job_id is None and "KUBERNETES_SERVICE_HOST" in environ:
        job_id = _pod_job(environ.get("HOSTNAME", ""), environ.get("JOB_COMPLETION_INDEX", ""))
    return job_id or _launcher(environ, session) or environ.get("STAGEWATCH_RUN_ID")


def _launcher(environ: Mapping[str, str], session: int) -> str | None:
    """The id of a job from a launcher outside of any scheduler, by variables that all ranks
    share."""
    run_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    if run_id != "none":  # torchrun's default
        made_up = _UUID.fullmatch(run_id)
        return f"torchrun-{made_up[1]}" if made_up else run_id
    if environ.get("PMIX_NAMESPACE"):  # Open MPI and PRRTE: unique, and equal on all nodes
        return f"mpi-{environ['PMIX_NAMESPACE']}"
    torchrun = _TORCHRUN.search(environ.get("TORCHELASTIC_ERROR_FILE", ""))
    if torchrun and environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE"):
        return f"torchrun-{torchrun[1]}"  # of one node; others have directories of their own
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if address and port and _first(environ, RANK):  # `accelerate launch` sets both without a rank
        if address in ("localhost", "::1") or address.startswith("127."):
            address = _machine(environ)
        return f"rendezvous-{address}-{port}"
    if "HYDI_CONTROL_FD" in environ:  # Hydra (MPICH, Intel MPI): each rank leads its own session
        return f"hydra-{_parent(session)}-{_machine(environ)}"
    return None


def _parent(pid: int) -> int:
    """The parent of a process; 0 if it cannot be seen."""
    try:  # field 4 of /proc/PID/stat; the command in field 2 may hold spaces and brackets
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _machine(environ: Mapping[str, str]) -> str:
    """A name of this machine, or of this container: Docker and Kubernetes set `HOSTNAME`."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        boot = b""
    return f"{crc32(boot + environ.get('HOSTNAME', '').encode()):08x}"


def _session(session: int) -> str:
    """The session as a name; the first one of every container has the number 1."""
    return f"session-{session}" if session > 1 else f"session-{session}-{os.uname().nodename}"


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
