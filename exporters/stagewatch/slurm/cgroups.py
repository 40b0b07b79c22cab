"""The cgroups of Slurm's jobs on this node: their processes and their devices.

v2   /sys/fs/cgroup/system.slice/[NODE_]slurmstepd.scope/{job_540|sSLUID}/step_0/user/task_0
v1   /sys/fs/cgroup/devices/slurm[_NODE]/uid_1000/job_540/step_0/task_0

Only v1 lists a job's devices, and where the root may use every device (as it may on every usual
node) the kernel writes `a *:* rwm` for a confined job too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.slurm.cgroup_paths import parse_slurm_cgroup

NVIDIA_MAJOR = 195
CONTROL_MINORS = frozenset({254, 255})
"""`/dev/nvidia-modeset` and `/dev/nvidiactl`, which every job may use."""
MAX_DIRECTORIES = 4096


@dataclass(frozen=True, slots=True)
class CgroupJob:
    """One job; `job_id` is empty where its directory is named by SLUID."""

    job_id: str
    sluid: str
    path: Path

    def minors(self) -> frozenset[int]:
        """The minor numbers of the GPUs that its device list names; empty where it tells none."""
        try:
            lines = (self.path / "devices.list").read_text().splitlines()
        except OSError:
            return frozenset()
        minors = set()
        for line in lines:
            if line.startswith("a "):
                return frozenset()  # everything is allowed: devices are not constrained
            match = re.fullmatch(rf"c {NVIDIA_MAJOR}:(\d+|\*) \w+", line.strip())
            if match and match[1] == "*":
                return frozenset()
            if match:
                minors.add(int(match[1]))
        return frozenset(minors - CONTROL_MINORS)

    def pids(self) -> Iterator[tuple[str, int]]:
        """Its processes, each with its step."""
        for directory, names, files in _walk(self.path):
            names.sort(key=lambda name: name == "step_extern")  # it holds no program of the job
            if "cgroup.procs" not in files:
                continue
            cgroup = parse_slurm_cgroup(f"/slurm/{self.path.name}/" + _below(self.path, directory))
            step = cgroup.step if cgroup else ""
            with contextlib.suppress(OSError, ValueError):
                for line in Path(directory, "cgroup.procs").read_text().split():
                    yield step, int(line)


class SlurmCgroups:
    """Looks for jobs below one mount point, usually `/sys/fs/cgroup`."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root

    def jobs(self) -> list[CgroupJob] | None:
        """Every job that has a cgroup; None where Slurm does not use cgroups on this node."""
        roots = [*self._unified(), *self._legacy()]
        if not roots:
            return None
        return [job for root in roots for job in self._below(root)]

    def _unified(self) -> list[Path]:
        return sorted((self._root / "system.slice").glob("*slurmstepd.scope"))

    def _legacy(self) -> list[Path]:
        slurm = sorted((self._root / "devices").glob("slurm*"))
        return [user for root in slurm for user in sorted(root.glob("uid_*"))]

    def _below(self, root: Path) -> Iterator[CgroupJob]:
        with contextlib.suppress(OSError):
            for entry in os.scandir(root):
                cgroup = parse_slurm_cgroup(f"/slurm/{entry.name}")
                if cgroup is not None and entry.is_dir(follow_symlinks=False):
                    path = Path(entry.path)
                    yield CgroupJob(cgroup.job_id, cgroup.sluid, path)


def _walk(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for count, entry in enumerate(os.walk(path)):
        if count >= MAX_DIRECTORIES:
            return
        yield entry


def _below(path: Path, directory: str) -> str:
    return os.path.relpath(directory, path) + "/"
