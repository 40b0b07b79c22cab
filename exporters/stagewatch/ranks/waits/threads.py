"""The threads of a process, and the system call that each of them is in; see proc_pid_syscall(5).

To read the call of a thread takes permission to trace the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from stagewatch.core.descriptors import closing, read_up_to
from stagewatch.host.procfs import TICKS_PER_SECOND
from stagewatch.ranks.waits.system_calls import Call, Role

MAX_THREADS = 256
"""The most threads of one process that are looked at, the main one first."""

_QUIET = frozenset(Role) - {Role.FILE, Role.PATH, Role.DEVICE, Role.OTHER, Role.READ, Role.WRITE}
"""Calls in which a thread sleeps interruptibly, with any file."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One look at a thread."""

    task: int
    call: Call | None
    """`None` if it is in no call, or if that may not be read."""
    arguments: tuple[int, ...] = ()
    state: str = "S"
    """The letter of its `stat`."""
    channel: str = ""
    """The kernel's function that it sleeps in, if that is needed."""
    runs: int = 0
    """Number of times that it has got a core so far."""
    cpu_seconds: float = 0.0
    """CPU time so far."""

    def is_still(self, before: Thread) -> bool:
        """Whether it has not run since an earlier look."""
        return self == before and self.state not in "R"

    def waits_like(self, before: Thread) -> bool:
        """Whether it is in the same call with the same arguments, perhaps entered again."""
        mine, others = self.arguments, before.arguments
        if self.call != before.call or mine[:1] != others[:1]:
            return False
        futex = self.call is not None and self.call.role is Role.FUTEX
        return not futex or mine[:2] == others[:2]


@dataclass(frozen=True, slots=True)
class Threads:
    """One look at the threads of a process."""

    threads: tuple[Thread, ...]
    lacking: tuple[str, ...] = ()


def look(root: str, pid: int, calls: Mapping[int, Call], wanted: Iterable[int] = ()) -> Threads:
    """The first threads of a process, and the thread `wanted`.  Raises `OSError` if it has ended.

    It waits for an execve of that process; see `stagewatch.host.patience`.
    """
    with os.scandir(f"{root}/{pid}/task") as entries:
        tasks = [int(entry.name) for entry in islice(entries, MAX_THREADS)]
    found: list[Thread] = []
    for task in dict.fromkeys([*tasks, *wanted]):
        try:
            found.append(_thread(f"{root}/{pid}/task/{task}", task, calls))
        except PermissionError as error:
            return Threads((), (f"the system calls of its threads: {error.strerror}",))
        except (OSError, ValueError, IndexError):  # it has just ended
            continue
    return Threads(tuple(found))


def _thread(path: str, task: int, calls: Mapping[int, Call]) -> Thread:
    number, *words = read(f"{path}/syscall").split()
    runs, cpu_seconds = _times(path)
    if number in (b"running", b"-1"):
        return Thread(task, None, (), _state(path), "", runs, cpu_seconds)
    call = calls.get(int(number)) or Call(f"system call {int(number)}", Role.OTHER)
    arguments = tuple(int(word, 16) for word in words[:6])
    if call.role in _QUIET:
        return Thread(task, call, arguments, "S", "", runs, cpu_seconds)
    return Thread(task, call, arguments, _state(path), _channel(path), runs, cpu_seconds)


def _times(path: str) -> tuple[int, float]:
    """How often and for how many seconds it has run; only the time on a kernel without
    schedstat."""
    try:
        cpu, _, runs = read(f"{path}/schedstat").split()
        return int(runs), int(cpu) / 1e9
    except FileNotFoundError:
        fields = read(f"{path}/stat").rpartition(b")")[2].split()
        return 0, (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def _state(path: str) -> str:
    return read(f"{path}/stat").rpartition(b")")[2].split()[0].decode()


def _channel(path: str) -> str:
    try:
        name = read(f"{path}/wchan").decode("ascii", "replace").strip("\0\n ")
    except OSError:
        return ""
    return "" if name == "0" else name


def read(path: str, limit: int = 1 << 16) -> bytes:
    """The bytes of a file of the kernel's.  Raises `OSError`."""
    with closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        return read_up_to(descriptor, limit)
