"""What single processes did and hold: `/proc/<pid>/{io,task,fd}`.

A process that ends meanwhile, or is not ours to look at, gives `None`: reading another user's needs
CAP_SYS_PTRACE.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from stagewatch.host.procfs import TICKS_PER_SECOND

MAX_DESCRIPTORS = 65_536
"""Descriptors looked at of one process."""

_SOCKET = "socket:["
_DELAY_FIELD = 39
"""Of block I/O, counted from the state, which is field 3 in proc_pid_stat(5)."""


@dataclass(frozen=True, slots=True)
class IoCounters:
    """Bytes a process and all the children it has waited for have read and written."""

    read_calls: int
    """By read(2) and the like, whatever from: also pipes and the page cache."""
    write_calls: int
    read_storage: int
    """Fetched from storage."""
    write_storage: int
    """Made dirty, to be written to storage; what was taken back unwritten is left out."""


def read_io(proc: Path, pid: int) -> IoCounters | None:
    """See proc_pid_io(5)."""
    raw = read_bytes(f"{proc}/{pid}/io")
    if raw is None:
        return None
    try:
        numbers = dict(line.split(b": ") for line in raw.splitlines())
        return IoCounters(
            int(numbers[b"rchar"]),
            int(numbers[b"wchar"]),
            int(numbers[b"read_bytes"]),
            max(0, int(numbers[b"write_bytes"]) - int(numbers[b"cancelled_write_bytes"])),
        )
    except (ValueError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class Task:
    """One thread, as far as waiting is concerned."""

    tid: int
    state: str
    block_delay_seconds: float
    """Time it waited for block devices; stays 0 unless sysctl kernel.task_delayacct is on."""


def read_tasks(proc: Path, pid: int, limit: int) -> list[Task]:
    """The threads of a process, `limit` at most; empty if it is gone."""
    found = []
    try:
        tids = os.listdir(f"{proc}/{pid}/task")[:limit]  # noqa: PTH208 - hundreds of names
    except OSError:
        return []
    for tid in tids:
        raw = read_bytes(f"{proc}/{pid}/task/{tid}/stat")
        task = None if raw is None else _parse_task(int(tid), raw)
        if task is not None:
            found.append(task)
    return found


def _parse_task(tid: int, raw: bytes) -> Task | None:
    fields = raw.rpartition(b")")[2].split()
    try:
        delay = int(fields[_DELAY_FIELD]) / TICKS_PER_SECOND
        return Task(tid, fields[0].decode("ascii", "replace"), delay)
    except (IndexError, ValueError):
        return None


def delays_are_counted(proc: Path) -> bool:
    """Whether the kernel counts the time tasks wait for block devices."""
    return (read_bytes(f"{proc}/sys/kernel/task_delayacct") or b"").strip() == b"1"


def socket_inodes(proc: Path, pid: int) -> list[int]:
    """The sockets a process holds open; empty if it is gone or not ours to look at."""
    directory = f"{proc}/{pid}/fd"
    found = []
    try:
        names = os.listdir(directory)  # noqa: PTH208 - thousands of names
    except OSError:
        return []
    for name in names[:MAX_DESCRIPTORS]:
        try:
            target = os.readlink(f"{directory}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith(_SOCKET):
            found.append(int(target[len(_SOCKET) : -1]))
    return found


def read_bytes(path: str, limit: int = 1 << 16) -> bytes | None:
    """A small file of the kernel's, `None` if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while limit > 0 and (part := os.read(descriptor, limit)):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def open_files(proc: Path, pid: int) -> tuple[int, int | None] | None:
    """Open descriptors of a process and their (soft) limit, `None` for no limit."""
    try:
        count = os.stat(f"{proc}/{pid}/fd").st_size  # noqa: PTH116 - the number, since Linux 6.2
        if not count:
            count = len(os.listdir(f"{proc}/{pid}/fd"))  # noqa: PTH208
    except OSError:
        return None
    for line in (read_bytes(f"{proc}/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max open files"):
            soft = line.split()[3]
            return count, int(soft) if soft.isdigit() else None
    return None
