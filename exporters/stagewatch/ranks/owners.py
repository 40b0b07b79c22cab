"""The owner of a job: any user may write any job's id into a record or an environment.

If Slurm confines jobs, the control group of a process names its job, and a job has one user.
Elsewhere a job belongs to the first user who states it, since nothing better is known; a job on
several nodes may then have another owner on each.
"""

from __future__ import annotations

from stagewatch.host.procfs import Procfs
from stagewatch.slurm.node_jobs import parse_slurm_cgroup

MAX_COMPONENTS = 128
"""Ranks of a heterogeneous job state its leader's id, and each component has an id of its own, one
after the other; at most so many: MAX_HET_JOB_COMPS in Slurm's src/common/slurm_protocol_defs.h."""


def slurm_job(proc: Procfs, pid: int) -> str:
    """The job that Slurm has put a process into; empty if none, or if only its SLUID is known."""
    groups = map(parse_slurm_cgroup, proc.cgroups(pid))
    return next((group.job_id for group in groups if group and group.job_id), "")


def contradicts(stated: str, job: str) -> bool:
    """Whether a process of Slurm's `job` states the id of another job of Slurm's."""
    if not job or not (stated.isascii() and stated.isdecimal()):
        return False
    return not 0 <= int(job) - int(stated) < MAX_COMPONENTS


def of_another(job_id: str, uid: int) -> str:
    """The name of a job for ranks of a user who claims it but does not own it."""
    return f"{job_id}~{uid}"
