"""The processes that faults act on: how a target names one, and which are protected.

A process is its pid and its start time, so that a signal never reaches a later process with the
same pid."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stagewatch.core.descriptors import closing
from stagewatch.core.errors import ConfigError, SourceError, StagewatchError
from stagewatch.core.words import printable
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs, variables
from stagewatch.ranks.directory import rank_directory

TAG = "STAGEWATCH_FAULT_ID"
"""A variable in the environment of every helper, which names the injection it belongs to."""
TARGET = "a process id, or a rank of this node as JOB:RANK or JOB:ROLE:RANK"
_KTHREADD = 2


class Gone(StagewatchError):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process's pid and its start time, in clock ticks since boot."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Identity:
        """The process that has this pid now.  Raises `Gone` if there is none."""
        stat = Procfs().stat(pid)
        if stat is None or stat.state in "ZX":
            raise Gone(f"there is no process {pid} on this machine")
        return cls(pid, stat.start_ticks)

    @property
    def alive(self) -> bool:
        """Whether the process is still running; a zombie does not count."""
        return Procfs().is_running(self.pid, self.start_ticks)

    @property
    def state(self) -> str:
        """The kernel's letter for the process's state, empty once it is gone; see proc(5)."""
        stat = Procfs().stat(self.pid)
        return stat.state if stat and stat.start_ticks == self.start_ticks else ""

    def send(self, number: signal.Signals) -> None:
        """Signal this process and no other.  Raises `Gone`, or `SourceError` without permission."""
        try:
            with closing(os.pidfd_open(self.pid)) as handle:
                if not self.alive:  # checked while the handle keeps the pid reserved
                    raise ProcessLookupError
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError as error:
            raise Gone(f"process {self.pid} has ended") from error
        except PermissionError as error:
            raise SourceError(f"you may not signal process {self.pid}: run as root") from error


def tagged(id: str) -> list[Identity]:
    """The running helpers of an injection: they have its id in their environment."""
    helpers = []
    for pid, environ in _files().read("environ", Procfs().pids(), (f"{TAG}=",)).items():
        with contextlib.suppress(Gone):
            if pid != os.getpid() and variables(environ or b"").get(TAG) == id:
                helpers.append(Identity.of(pid))
    return helpers


@cache
def _files() -> GuardedFiles:
    """Reads files of other processes; its child ends with this command."""
    files = GuardedFiles()
    atexit.register(files.close)
    return files


def find_process(target: str, record_dir: Path) -> Identity:
    """The one process that a target names.

    Raises `ConfigError` for a malformed target, `StagewatchError` if none or several match.
    """
    if re.fullmatch(r"\d{1,10}", target):
        return Identity.of(int(target))
    parts = target.split(":")
    if len(parts) not in (2, 3) or not all(parts) or not re.fullmatch(r"\d{1,9}", parts[-1]):
        raise ConfigError(f"--target {target!r}: must be {TARGET}")
    job, role, number = parts[0], parts[1] if len(parts) == 3 else None, int(parts[-1])
    living: list[tuple[str, Identity]] = []
    with rank_directory(record_dir, Procfs()) as directory:
        ranks = directory.look().ranks
    for rank in ranks:
        if (rank.job_id, rank.rank) != (job, number) or role not in (None, rank.role):
            continue
        with contextlib.suppress(Gone):
            identity = Identity.of(rank.pid)
            if rank.start_ticks in (None, identity.start_ticks):
                living.append((f"{rank.job_id}:{rank.role}:{rank.rank}", identity))
    if not living:
        raise StagewatchError(
            f"--target {target}: no such rank runs on this node; see stagewatch inspect"
        )
    if len(living) > 1:
        names = ", ".join(name for name, _ in living)
        raise StagewatchError(f"--target {target} could be {names}: name the role")
    return living[0][1]


def refuse_vital(identity: Identity) -> None:
    """Raise `StagewatchError` for a process that must not be stopped or killed: init, a thread of
    the kernel, this command and its ancestors, and stagewatch's agents."""
    proc = Procfs()
    pid = identity.pid
    if pid == 1:
        raise StagewatchError("refused: process 1 is init, the machine would go down with it")
    stat = proc.stat(pid)
    if pid == _KTHREADD or (stat and stat.parent == _KTHREADD):
        raise StagewatchError(f"refused: process {pid} is a thread of the kernel")
    if pid in _own_line(proc):
        raise StagewatchError(
            f"refused: process {pid} is this command itself, or one that started it"
        )
    if is_stagewatch(command_line(pid)):
        raise StagewatchError(
            f"refused: process {pid} belongs to stagewatch, which is to watch the fault"
        )


def command_line(pid: int) -> list[str]:
    """A process's arguments; empty if they cannot be read."""
    raw = _files().read("cmdline", [pid]).get(pid, b"")
    return raw.rstrip(b"\0").decode(errors="surrogateescape").split("\0") if raw else []


def describe(identity: Identity) -> str:
    """The process as text."""
    line = " ".join(command_line(identity.pid))
    return f"process {identity.pid} ({printable(line, 80)})"


def is_stagewatch(argv: list[str]) -> bool:
    """Whether this is the command line of an agent or of one of its helpers."""
    for index, argument in enumerate(argv[:6]):
        module = argument == "-m" and index + 1 < len(argv) and argv[index + 1]
        if module and (module == "stagewatch" or module.startswith("stagewatch.")):
            return True
    return any(Path(argument).name == "stagewatch" for argument in argv[:2])


def _own_line(proc: Procfs) -> set[int]:
    """This process and its ancestors."""
    line, pid = set(), os.getpid()
    while pid > 1 and pid not in line:
        line.add(pid)
        stat = proc.stat(pid)
        pid = stat.parent if stat else 0
    return line
