"""Whose a job is: any user may write any job's id into a record or an environment.

Where Slurm confines jobs, the control group of a process tells the job that it belongs to, and a
job has one user.  Elsewhere a job belongs to who was there first, and nobody can tell more; then a
job on several nodes may have another owner on each.
"""

from __future__ import annotations

from stagewatch.host.procfs import Procfs
from stagewatch.slurm.node_jobs import parse_slurm_cgroup

MAX_COMPONENTS = 128
"""Ranks of a heterogeneous job state its leader's id, and each component has an id of its own, one
after the other; at most so many: MAX_HET_JOB_COMPS in Slurm's src/common/slurm_protocol_defs.h."""


def slurm_job(proc: Procfs, pid: int) -> str:
    """The job that Slurm has put a process into; empty where it has not, or names it by SLUID."""
    groups = map(parse_slurm_cgroup, proc.cgroups(pid))
    return next((group.job_id for group in groups if group and group.job_id), "")


def contradicts(stated: str, job: str) -> bool:
    """Whether a process of Slurm's `job` states the id of another job of Slurm's."""
    if not job or not (stated.isascii() and stated.isdecimal()):
        return False
    return not 0 <= int(job) - int(stated) < MAX_COMPONENTS


def of_another(job_id: str, uid: int) -> str:
    """What a job is called of which a user who does not own it says that it is his."""
    return f"{job_id}~{uid}"
