"""Which GPUs Slurm gave to which job, as the prolog wrote it down (`deploy/slurm/`).

One file per job in a directory that only root writes, named by the job id::

    user=alice
    gpus=0,1,2,3                Slurm's numbers of the GPUs: those of their device files
    devices=GPU-...,MIG-...     UUIDs, where Slurm gives MIG instances
    started=1732458600          Unix time

The epilog removes it.  A file `.in-use` says that the prolog does its part, also while there is no
job; a directory without it and without jobs says nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

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
    """Jobs by id; None where the prolog is not in use.  Files of others than root are skipped."""
    try:
        found = sorted(entry.name for entry in os.scandir(directory))
    except OSError:
        return None
    names = [name for name in found if name.isdigit()]
    if not names and IN_USE not in found:
        return None
    jobs = {}
    for name in names[:MAX_JOBS]:
        text = _read(directory / name)
        if text is not None:
            jobs[name] = _parse(name, text)
    return jobs


def _read(file: Path) -> str | None:
    with contextlib.suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid()):
                return os.read(descriptor, MAX_SIZE).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    return None


def _parse(job_id: str, text: str) -> PrologJob:
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    return PrologJob(
        job_id,
        values.get("user", ""),
        numbers(values.get("gpus", "")),
        uuids(values.get("devices", "")),
    )


def numbers(text: str) -> frozenset[int]:
    """The GPUs of a list such as `0,1,4-7`; what is no number is left out."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            found.update(range(first, min(last, first + MAX_GPUS) + 1))
    return frozenset(found)


def uuids(text: str) -> frozenset[str]:
    """The UUIDs of GPUs and MIG instances of a list that may also hold numbers."""
    return frozenset(re.findall(r"(?:GPU|MIG)-[0-9a-fA-F-]{36}", text))
