"""The Slurm jobs of this node, from its cgroups and from the prolog's files.

The interface for `gpu` and `kernel_log`: `parse_slurm_cgroup` for a process' path, `SlurmCgroups`
for all jobs with a cgroup, `read_prolog` for the GPUs that Slurm allocated.

Slurm names its cgroups by job, and from 26.05 on optionally by SLUID, an id that does not reveal
the job number (https://slurm.schedmd.com/cgroup_v2.html); both may contain a node's name, if
several slurmd share a machine:

v2   /sys/fs/cgroup/system.slice/[NODE_]slurmstepd.scope/{job_540|sSLUID}/step_0/user/task_0
v1   /sys/fs/cgroup/devices/slurm[_NODE]/uid_1000/job_540/step_0/task_0

Jobs are looked for in v2 alone; under v1 the prolog names them.

The prolog (`deploy/slurm/`) writes one file per job into a directory that only root writes, named
by the job id::

    user=alice
    gpus=0,1,2,3                Slurm's numbers of the GPUs: those of their device files
    devices=GPU-...,MIG-...     UUIDs, where Slurm gives MIG instances
    started=1732458600          Unix time

The epilog removes the file. A file `.in-use` shows that the prolog is configured even while there
is no job; a directory without it and without jobs shows nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.descriptors import regular

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
    """The job of a cgroup path; None for a path that is not Slurm's."""
    if not _OURS.search(path):
        return None
    step = _STEP.search(path)
    step_id = step[1] if step else ""
    if job := _JOB.search(path):
        return SlurmCgroup(job[1], "", step_id)
    if sluid := _SLUID.search(path):
        return SlurmCgroup("", sluid[1], step_id)
    return None


MAX_DIRECTORIES = 4096


@dataclass(frozen=True, slots=True)
class CgroupJob:
    """One job; `job_id` is empty if its directory is named by SLUID."""

    job_id: str
    sluid: str
    path: Path

    def pids(self) -> Iterator[tuple[str, int]]:
        """Its processes with their steps."""
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
    """Finds jobs below one mount point, usually `/sys/fs/cgroup`."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root

    def jobs(self) -> list[CgroupJob] | None:
        """All jobs with a cgroup; None if Slurm does not use cgroups on this node."""
        roots = sorted((self._root / "system.slice").glob("*slurmstepd.scope"))
        if not roots:
            return None
        return [job for root in roots for job in self._below(root)]

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


IN_USE = ".in-use"
MAX_JOBS = 1024
MAX_SIZE = 8192
MAX_GPUS = 256


@dataclass(frozen=True, slots=True)
class PrologJob:
    """One job on this node."""

    job_id: str
    user: str
    minors: frozenset[int]
    uuids: frozenset[str]


def read_prolog(directory: Path) -> dict[str, PrologJob] | None:
    """Jobs by id; None if the prolog is not in use. Only files of root count."""
    try:
        entries = sorted(entry.name for entry in os.scandir(directory))
    except OSError:
        return None
    names = [name for name in entries if name.isdigit()]
    if not names and IN_USE not in entries:
        return None
    jobs = {}
    for name in names[:MAX_JOBS]:
        text = _read_prolog_file(directory / name)
        if text is not None:
            jobs[name] = _prolog_job(name, text)
    return jobs


def _read_prolog_file(file: Path) -> str | None:
    with contextlib.suppress(OSError), regular(file, follow=False) as (descriptor, status):
        if status.st_uid in (0, os.geteuid()):
            return os.read(descriptor, MAX_SIZE).decode("utf-8", "replace")
    return None


def _prolog_job(job_id: str, text: str) -> PrologJob:
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    return PrologJob(
        job_id,
        values.get("user", ""),
        numbers(values.get("gpus", "")),
        uuids(values.get("devices", "")),
    )


def numbers(text: str) -> frozenset[int]:
    """The GPUs of a list such as `0,1,4-7`; other parts are ignored."""
    gpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            gpus.update(range(first, min(last, first + MAX_GPUS) + 1))
    return frozenset(gpus)


def uuids(text: str) -> frozenset[str]:
    """The UUIDs of GPUs and MIG instances in a list that may also hold numbers."""
    return frozenset(re.findall(r"(?:GPU|MIG)-[0-9a-fA-F-]{36}", text))
