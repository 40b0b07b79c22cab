"""Whether the process behind a stage record lives, and which one it is; nothing that the record
says of itself is believed."""

from __future__ import annotations

import fcntl
import os
import struct

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.rank_record import Life, RankRecord

_LOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux

UNSEEN = 0
"""The pid of a writer that lives in a PID namespace which is not visible from here."""


class WrongOwner(Exception):
    """The process that the record claims as its writer belongs to another user."""


def life_of(record: RankRecord, fd: int, owner: int, proc: Procfs) -> tuple[Life, int]:
    """Whether the writer lives, and its pid as seen from here (`UNSEEN` where it is not).

    `owner` is the user the file belongs to.  Raises `WrongOwner`.
    """
    if record.closed:
        return Life.CLOSED, record.pid
    held, pid = lock_holder(fd)
    if not pid:
        # Closing any descriptor of the file drops a process' lock, so what the record says counts
        # as far as /proc bears it out.
        if not _is_running(record, proc):
            return (Life.ALIVE, UNSEEN) if held else (Life.GONE, record.pid)
        pid = record.pid
    user = proc.uid(pid)
    if user is not None and user != owner:
        raise WrongOwner(f"process {pid} belongs to user {user}, the record to {owner}")
    return Life.ALIVE, pid


def _is_running(record: RankRecord, proc: Procfs) -> bool:
    boot = proc.boot_id()
    return (
        record.pid_namespace == proc.pid_namespace()
        and (not boot or record.boot_id == boot)
        and proc.is_running(record.pid, record.start_ticks)
    )


def lock_holder(fd: int) -> tuple[bool, int]:
    """Whether a process holds the writer's lock, and its pid in our namespace (0: not visible).

    `fcntl(2)`, F_GETLK: the kernel translates the pid into the caller's PID namespace.  Asking for
    a read lock finds a write lock alone, which only who may write the file can hold.
    """
    asked = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return kind != fcntl.F_UNLCK, max(0, pid)
