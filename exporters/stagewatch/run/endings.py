"""Watches when and how the processes of a command end, whatever their parents are.

A pidfd becomes readable the moment its process ends; see pidfd_open(2).  How it ended stands in
`/proc/PID/stat` until its parent has waited for it, and from Linux 6.15 on the pidfd tells it
afterwards (`PIDFD_GET_INFO` in include/uapi/linux/pidfd.h).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from stagewatch.host.procfs import ProcessStat, Procfs

MAX_PROCESSES = 256
"""Most processes watched at a time; each takes a descriptor."""
MAX_ENDINGS = 1024
"""Most endings kept: the latest."""

_GET_INFO = 0xC040FF0B  # _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)
_INFO = struct.Struct("=Q52xi")  # its mask and its exit_code
_INFO_EXIT = 1 << 3


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one process."""

    pid: int
    start_ticks: int
    command: str
    """Its name, as the kernel knows it."""
    time: float
    """Unix time, seconds."""
    status: int | None
    """As `os.waitpid` gives it; `None` if its parent was faster to reap it."""

    @property
    def signal(self) -> int:
        """The signal that ended it; 0 if none is known."""
        return os.WTERMSIG(self.status) if self.status and os.WIFSIGNALED(self.status) else 0


class Endings:
    """Watches processes in a thread, which begins with the first of them."""

    def __init__(self, proc: Procfs) -> None:
        self._proc = proc
        self._poll = select.epoll()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._stop, select.EPOLLIN)
        self._open: dict[int, tuple[int, ProcessStat]] = {}
        """By descriptor, the pid and the first look."""
        self._ended: dict[int, Ending] = {}
        self._known: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, processes: Mapping[int, ProcessStat]) -> None:
        """Watch these processes: all processes of the command."""
        with self._lock:
            self._known &= {(pid, stat.start_ticks) for pid, stat in processes.items()}
            for pid, stat in processes.items():
                if (pid, stat.start_ticks) not in self._known and len(self._open) < MAX_PROCESSES:
                    self._begin(pid, stat)
        if self._thread is None and self._open:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def seen(self) -> list[Ending]:
        """The processes that have ended, in the order of their ends."""
        with self._lock:
            self._note_ready()
            return list(self._ended.values())

    def of(self, pid: int, start_ticks: int) -> Ending | None:
        """The end of a process, if it was seen."""
        with self._lock:
            self._note_ready()
            ending = self._ended.get(pid)
        return ending if ending is not None and ending.start_ticks == start_ticks else None

    def close(self) -> None:
        """Stop watching; the seen endings stay."""
        self._stopped = True
        os.eventfd_write(self._stop, 1)
        if self._thread is not None:
            self._thread.join()
        for descriptor in (*self._open, self._stop):
            os.close(descriptor)
        self._open.clear()
        self._poll.close()

    def _begin(self, pid: int, stat: ProcessStat) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # it has ended since, or this kernel or sandbox has no such call
            return
        now = self._proc.stat(pid)
        if now is None or now.start_ticks != stat.start_ticks:
            os.close(descriptor)
            return
        self._known.add((pid, stat.start_ticks))
        self._open[descriptor] = pid, stat
        self._poll.register(descriptor, select.EPOLLIN)

    def _watch(self) -> None:
        while not self._stopped:
            self._poll.poll()
            with self._lock:
                self._note_ready()

    def _note_ready(self) -> None:
        """Note all processes that have ended by now."""
        now = time.time()
        for descriptor, _ in self._poll.poll(0):
            if descriptor == self._stop:
                continue
            pid, stat = self._open.pop(descriptor)
            self._poll.unregister(descriptor)
            status = _status(self._proc, pid, descriptor)
            os.close(descriptor)
            self._ended.pop(pid, None)
            self._ended[pid] = Ending(pid, stat.start_ticks, stat.command, now, status)
            if len(self._ended) > MAX_ENDINGS:
                del self._ended[next(iter(self._ended))]


def _status(proc: Procfs, pid: int, descriptor: int) -> int | None:
    """The wait status of the process behind a pidfd; from `/proc` as long as it is a zombie."""
    status = proc.exit_status(pid)
    if status is not None:
        return status
    answer = bytearray(_INFO.pack(_INFO_EXIT, 0))
    with contextlib.suppress(OSError):  # an older kernel
        fcntl.ioctl(descriptor, _GET_INFO, answer)
        told, status = _INFO.unpack(answer)
        return status if told & _INFO_EXIT else None
    return None
