"""What a cgroup path says about the Slurm job behind it.

Slurm names its cgroups `job_540/step_0/...` (v1 below `slurm/uid_1000`, v2 below
`slurmstepd.scope`; either may carry a node's name, where several slurmd share a machine), and
from 26.05 on optionally by SLUID, an id that no path alone can turn into a job number.
https://slurm.schedmd.com/cgroup_v2.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_SLUID = re.compile(r"/(s[0-9A-HJKMNP-TV-Z]{13})(?:/|$)", re.IGNORECASE)
_STEP = re.compile(r"/step_([A-Za-z0-9_]+)(?:/|$)")
_OURS = re.compile(r"slurm", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SlurmCgroup:
    """A cgroup of a job; exactly one of `job_id` and `sluid` is known."""

    job_id: str
    sluid: str
    step: str


def parse_slurm_cgroup(path: str) -> SlurmCgroup | None:
    """The job a path belongs to, None for a path that is not Slurm's."""
    if not _OURS.search(path):
        return None
    step = _STEP.search(path)
    step_id = step[1] if step else ""
    if job := _JOB.search(path):
        return SlurmCgroup(job[1], "", step_id)
    if sluid := _SLUID.search(path):
        return SlurmCgroup("", sluid[1], step_id)
    return None
