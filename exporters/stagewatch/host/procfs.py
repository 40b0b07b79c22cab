"""Processes as `/proc` shows them; see proc(5).

Processes end between two reads all the time, so a reader returns `None` for a process that is gone
or hidden from the agent.  Without privileges of its own, the agent has a child with them read where
another user's task sleeps in the kernel; see `guarded`.

No read here waits for the memory map of its process; `guarded` does those reads.  A read that may
wait for an execve of its process goes through `patience`.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from stagewatch.core.errors import SourceError
from stagewatch.core.shortage import is_shortage
from stagewatch.host.guarded import Files
from stagewatch.host.patience import MOMENT_SECONDS, Patience, user_of

log = logging.getLogger(__name__)

T = TypeVar("T")

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


_EXIT_CODE = 49
"""The index of the exit code in `/proc/<pid>/stat` behind the command; see proc_pid_stat(5)."""
_NUMBERS = operator.itemgetter(1, 3, 6, 7, 9, 11, 12, 17, 19, 21)
"""Behind the command in `/proc/<pid>/stat`: ppid, session, flags, minflt, majflt, utime, stime,
num_threads, starttime and rss."""
_KERNEL_THREAD = 0x200000
"""The flag PF_KTHREAD (include/linux/sched.h)."""
MAX_TASKS = 512
"""The most threads of a process that are searched."""


class ProcessStat(NamedTuple):
    """Fields of `/proc/<pid>/stat` (or of one task)."""

    command: str
    state: str
    parent: int
    session: int
    user_seconds: float
    system_seconds: float
    threads: int
    start_ticks: int
    resident_bytes: int
    page_faults: int = 0
    """Minor and major page faults."""
    major_page_faults: int = 0
    """Page faults that waited for a disk: for swapped-out pages, or pages of a file."""
    kernel_thread: bool = False
    """Whether it is a thread of the kernel, which has no children."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Waiting and switches of one task, and its process's swap: its `schedstat` and `status`."""

    queue_seconds: float | None
    """Time spent runnable but waiting for a core; `None` on a kernel without schedstat."""
    voluntary: int
    involuntary: int
    swapped_bytes: int | None = None
    """Memory of the whole process that is swapped out; `None` on a kernel without swap."""


class Procfs:
    """One process filesystem, usually the one at `/proc`.

    `privileged`, if given, reads the files that take privileges.
    """

    def __init__(self, root: Path = Path("/proc"), privileged: Files | None = None) -> None:
        self.root = root
        self._root = str(root)
        self._privileged = privileged

    def pids(self) -> list[int]:
        """All process ids; empty if the filesystem cannot be listed."""
        try:
            return [int(name) for name in os.listdir(self._root) if name.isdigit()]  # noqa: PTH208
        except OSError:
            return []

    def stat(self, pid: int, task: int | None = None) -> ProcessStat | None:
        """The process (CPU time of all its threads), or one of its tasks alone."""
        return _stat(self.read_patiently(pid, "stat" if task is None else f"task/{task}/stat"))

    def stats(self, pids: Iterable[int]) -> dict[int, ProcessStat]:
        """The `stat` of the processes that answer."""
        raws = self._read_many(pids, lambda pid: read_bytes(f"{self._root}/{pid}/stat"))
        stats = {pid: _stat(raw) for pid, raw in raws.items()}
        return {pid: stat for pid, stat in stats.items() if stat is not None}

    def is_running(self, pid: int, start_ticks: int) -> bool:
        """Whether the process that began at this time runs: a zombie does not, and another process
        with its pid does not count.

        A process that does not answer is taken to be the same and to run.
        """
        return pid in self.running({pid: start_ticks})

    def running(self, began: Mapping[int, int]) -> set[int]:
        """Those of these processes that run, see `is_running`; `began`: when they began, by pid."""
        stats = self.stats(began)
        alive = {
            pid
            for pid, stat in stats.items()
            if stat.start_ticks == began[pid] and stat.state not in "ZX"
        }
        return alive | (began.keys() & self.silent() - stats.keys())

    def scheduling(self, pid: int, task: int) -> Scheduling | None:
        """How often one task gave up its core, and how long it waited for one."""
        status = read_bytes(f"{self._root}/{pid}/task/{task}/status")
        if status is None:
            return None
        # `VmSwap: 12 kB`; the kernel counts it without the lock of the memory map.
        swapped = _words(status, b"VmSwap")
        voluntary, involuntary = (
            _words(status, name)
            for name in (b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
        )
        times = (read_bytes(f"{self._root}/{pid}/task/{task}/schedstat") or b"").split()
        return Scheduling(
            queue_seconds=number(times[1]) / 1e9 if len(times) > 1 else None,
            voluntary=number(voluntary[0]) if voluntary else 0,
            involuntary=number(involuntary[0]) if involuntary else 0,
            swapped_bytes=number(swapped[0]) << 10 if swapped else None,
        )

    def task_named(self, pid: int, thread: int) -> int | None:
        """The task of a process that calls itself `thread` in the process's own PID namespace.

        See NSpid in proc_pid_status(5); `None` if it is not among the first `MAX_TASKS`.
        """
        try:
            names = os.listdir(f"{self._root}/{pid}/task")[:MAX_TASKS]  # noqa: PTH208
        except OSError:
            return None
        for name in names:
            status = read_bytes(f"{self._root}/{pid}/task/{name}/status") or b""
            ids = re.search(rb"^NSpid:.*\b(\d+)$", status, re.MULTILINE)
            if ids and int(ids[1]) == thread:
                return int(name)
        return None

    def exit_status(self, pid: int) -> int | None:
        """The wait status of a zombie, as in `os.waitpid`; `None` for other processes, and for
        those of other users."""
        fields = (read_bytes(f"{self._root}/{pid}/stat") or b"").rpartition(b")")[2].split()
        if len(fields) <= _EXIT_CODE or fields[0] not in (b"Z", b"X"):
            return None
        return number(fields[_EXIT_CODE])

    def wait_channels(self, tasks: Iterable[tuple[int, int]]) -> dict[int, str]:
        """The kernel function that each task of a process sleeps in, by the task.

        Empty for one that runs or is hidden.
        """
        wanted = list(tasks)
        raws: Mapping[int, bytes | None] = {}
        if self._privileged is None:
            answers = self.each(
                [
                    (pid, partial(read_bytes, f"{self._root}/{pid}/task/{task}/wchan"))
                    for pid, task in wanted
                ]
            )
            raws = {task: raw for (_, task), raw in zip(wanted, answers, strict=True)}
        else:
            with contextlib.suppress(SourceError):  # other collectors report it
                raws = self._privileged.read("wchan", [task for _, task in wanted])
        names = {
            task: (raws.get(task) or b"").decode("ascii", "replace").strip("\0\n ")
            for _, task in wanted
        }
        return {task: "" if name == "0" else name for task, name in names.items()}

    def wait_channel(self, pid: int, task: int) -> str:
        """The kernel function that one task sleeps in; empty if it runs or is hidden."""
        return self.wait_channels([(pid, task)])[task]

    def cgroups(self, pid: int) -> list[str]:
        """Paths of the cgroups a process is in, one per hierarchy; empty if it is gone."""
        raw = read_bytes(f"{self._root}/{pid}/cgroup") or b""
        lines = raw.decode("utf-8", "replace").splitlines()
        return [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]

    def uid(self, pid: int) -> int | None:
        """The effective user id; `None` if the process is gone or hidden."""
        return user_of(f"{self._root}/{pid}")

    def network_namespace(self, pid: int) -> int | None:
        """The inode of a process's network namespace; `None` if it is gone or hidden."""
        path = f"{self._root}/{pid}/ns/net"
        return self.patiently(pid, lambda: os.stat(path).st_ino)  # noqa: PTH116 - followed on purpose

    def network_namespaces(self, pids: Iterable[int]) -> dict[int, int]:
        """The network namespaces of many processes, without hidden ones."""
        return self._read_many(pids, lambda pid: os.stat(f"{self._root}/{pid}/ns/net").st_ino)  # noqa: PTH116

    def each(self, reads: Sequence[tuple[int, Callable[[], T]]]) -> list[T | None]:
        """The results of reads of many processes; cheaper than `patiently` for one after
        another."""
        return _patience.ask_each([(f"{self._root}/{pid}", read) for pid, read in reads])

    def _read_many(self, pids: Iterable[int], read: Callable[[int], T | None]) -> dict[int, T]:
        """The results of `read` by process; without those that have none."""
        wanted = list(pids)
        answers = self.each([(pid, partial(read, pid)) for pid in wanted])
        pairs = zip(wanted, answers, strict=True)
        return {pid: answer for pid, answer in pairs if answer is not None}

    def read_patiently(self, pid: int, file: str) -> bytes | None:
        """A file of a process; `None` also while an execve of the process blocks it."""
        path = f"{self._root}/{pid}/{file}"
        return self.patiently(pid, lambda: read_bytes(path))

    def patiently(
        self, pid: int, read: Callable[[], T], seconds: float = MOMENT_SECONDS
    ) -> T | None:
        """The result of `read`; `None` if it raises `OSError`, or no answer comes."""
        try:
            return _patience.ask(f"{self._root}/{pid}", read, seconds)
        except OSError:
            return None

    def silent(self) -> frozenset[int]:
        """The processes whose files an execve blocks."""
        prefix = f"{self._root}/"
        return frozenset(
            int(process.removeprefix(prefix))
            for process in _patience.silent()
            if process.startswith(prefix)
        )

    def pid_namespace(self) -> int:
        """The inode of the agent's own PID namespace, 0 where unknown."""
        return _namespace(self._root)

    def boot_id(self) -> str:
        """A random id of this boot of the kernel, empty where unknown."""
        raw = read_bytes(f"{self._root}/sys/kernel/random/boot_id") or b""
        return raw.decode("ascii", "replace").strip()


def _stat(raw: bytes | None) -> ProcessStat | None:
    if raw is None:
        return None
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    try:
        numbers = [*map(int, _NUMBERS(fields))]
        parent, session, flags, minor, major, user, system, threads, start, resident = numbers
        if min(numbers) < -(2**63) or max(numbers) >= 2**64:
            return None
        return ProcessStat(
            command=head.partition(b"(")[2].decode("utf-8", "replace"),
            state=fields[0].decode(),
            parent=parent,
            session=session,
            user_seconds=user / TICKS_PER_SECOND,
            system_seconds=system / TICKS_PER_SECOND,
            threads=threads,
            start_ticks=start,
            resident_bytes=resident * PAGE_SIZE,
            page_faults=minor + major,
            major_page_faults=major,
            kernel_thread=bool(flags & _KERNEL_THREAD),
        )
    except (IndexError, ValueError):
        return None


def variables(environ: bytes) -> dict[str, str]:
    """The variables of the contents of `/proc/<pid>/environ`."""
    pairs = (item.partition(b"=") for item in environ.split(b"\0") if b"=" in item)
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, _, value in pairs
    }


def number(text: str | bytes) -> int:
    """A number as the kernel prints it, of at most 64 bits.  Raises `ValueError` for others."""
    value = int(text)
    if not -(2**63) <= value < 2**64:
        raise ValueError("a number of more than 64 bits")
    return value


@cache
def _namespace(root: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"{root}/self/ns/pid").st_ino  # noqa: PTH116 - followed on purpose
    return 0


def _words(status: bytes, name: bytes) -> list[bytes]:
    """What stands behind a name in a `status` file; empty without it."""
    return status.partition(b"\n%b:" % name)[2].partition(b"\n")[0].split()


def _tell(process: str) -> None:
    log.warning("%s does not answer: is it stuck in exec, on a silent mount?", process)


_patience = Patience(user_of, _tell)


def _begin_anew() -> None:
    """In a forked child, which has none of its parent's threads."""
    global _patience  # noqa: PLW0603 - shared by all of a process
    _patience = Patience(user_of, _tell)


os.register_at_fork(after_in_child=_begin_anew)


def read_bytes(path: str, limit: int = 1 << 16) -> bytes | None:
    """The bytes of a small file of the kernel, which gives all of it to one read; `None` if it
    cannot be read.

    Raises `SourceError` if this process is short of descriptors or memory: then the file may be
    there, and a rank must not be taken for dead.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if is_shortage(error):
            raise SourceError(f"no file can be opened: {error.strerror}") from error
        return None
    try:
        return os.read(descriptor, limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)
