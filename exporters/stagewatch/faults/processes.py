"""Which process a target means, and which must be left alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.faults.identity import Identity
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.record_directory import RecordDirectory

TARGET = "a process id, or a rank of this node as JOB:RANK or JOB:ROLE:RANK"
_KTHREADD = 2


def find_process(target: str, record_dir: Path) -> Identity:
    """The one process that a target names.

    Raises `ConfigError` for what is no target, `StagewatchError` where none or several match.
    """
    if re.fullmatch(r"\d{1,10}", target):
        return Identity.of(int(target))
    parts = target.split(":")
    if len(parts) not in (2, 3) or not all(parts) or not re.fullmatch(r"\d{1,9}", parts[-1]):
        raise ConfigError(f"--target {target!r}: must be {TARGET}")
    job, role, rank = parts[0], parts[1] if len(parts) == 3 else None, int(parts[-1])
    proc = Procfs()
    found = [
        each
        for each in RankDirectory(RecordDirectory(record_dir, proc), proc).look().ranks
        if each.job_id == job and each.rank == rank and each.pid and role in (None, each.role)
    ]
    living = [(each, Identity.of(each.pid)) for each in found if proc.stat(each.pid)]
    living = [
        (each, identity)
        for each, identity in living
        if each.start_ticks in (None, identity.start_ticks)
    ]
    if not living:
        raise StagewatchError(
            f"--target {target}: no such rank runs on this node; see stagewatch inspect"
        )
    if len(living) > 1:
        names = ", ".join(f"{each.job_id}:{each.role}:{each.rank}" for each, _ in living)
        raise StagewatchError(f"--target {target} could be {names}: name the role")
    return living[0][1]


def refuse_vital(identity: Identity) -> None:
    """Raise `StagewatchError` for a process that must not be stopped or killed: init, a thread of
    the kernel, this command and what it was started from, and stagewatch's agents."""
    proc = Procfs()
    pid = identity.pid
    if pid == 1:
        raise StagewatchError("refused: process 1 is init, the machine would go down with it")
    stat = proc.stat(pid)
    if pid == _KTHREADD or (stat and stat.parent == _KTHREADD):
        raise StagewatchError(f"refused: process {pid} is a thread of the kernel")
    if pid in _own_line(proc):
        raise StagewatchError(
            f"refused: process {pid} is this command itself, or what it was started from"
        )
    if is_stagewatch(command_line(pid)):
        raise StagewatchError(
            f"refused: process {pid} belongs to stagewatch, which is to watch the fault"
        )


def command_line(pid: int) -> list[str]:
    """A process's arguments; empty where they cannot be read."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.rstrip(b"\0").decode(errors="surrogateescape").split("\0") if raw else []


def is_stagewatch(argv: list[str]) -> bool:
    """Whether this is the command line of an agent or of one of its helpers."""
    for index, argument in enumerate(argv[:6]):
        module = argument == "-m" and index + 1 < len(argv) and argv[index + 1]
        if module and (module == "stagewatch" or module.startswith("stagewatch.")):
            return True
    return any(Path(argument).name == "stagewatch" for argument in argv[:2])


def _own_line(proc: Procfs) -> set[int]:
    """This process and its ancestors."""
    found, pid = set(), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        stat = proc.stat(pid)
        pid = stat.parent if stat else 0
    return found
