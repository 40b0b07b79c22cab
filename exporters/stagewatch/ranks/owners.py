"""The owner of a job, since any user may write any job's id into a record or an environment.

If Slurm confines jobs, the control group of a process names its job, and a job has one user.
Elsewhere a job belongs to the first user who states its id; on several nodes it may then have
different owners.
"""

from __future__ import annotations

from stagewatch.host.procfs import Procfs
from stagewatch.slurm.node_jobs import parse_slurm_cgroup

MAX_COMPONENTS = 128
"""The most components of a heterogeneous job.  Its ranks state the id of the leader, and the
components have the next ids; see MAX_HET_JOB_COMPS in Slurm's src/common/slurm_protocol_defs.h."""


def slurm_job(proc: Procfs, pid: int) -> str:
    """The job that Slurm has put a process into; empty if none, or if only its SLUID is known."""
    groups = map(parse_slurm_cgroup, proc.cgroups(pid))
    return next((group.job_id for group in groups if group and group.job_id), "")


def contradicts(stated: str, job: str) -> bool:
    """Whether a process in Slurm's `job` states the id of another job of Slurm."""
    if not job or not (stated.isascii() and stated.isdecimal()):
        return False
    return not 0 <= int(job) - int(stated) < MAX_COMPONENTS


def of_another(job_id: str, uid: int) -> str:
    """The name of a job for ranks of a user who claims it but does not own it."""
    return f"{job_id}~{uid}"
