"""Pipes: who reads waits for those who may write, and the reverse."""

from __future__ import annotations

import os
from itertools import islice

from stagewatch.ranks.waits.holders import Holders
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, people

MAX_HOLDERS = 1024
"""Descriptors of one pipe whose mode is looked up."""


def other_end(holders: Holders, pid: int, link: str, *, reads: bool) -> OtherEnd:
    """Who may write the pipe that a process reads, or read the one that it writes.

    The mode of each holder stands in its `fdinfo`, see proc_pid_fdinfo(5).
    """
    other = os.O_WRONLY if reads else os.O_RDONLY
    found = {
        holder
        for holder, descriptor in islice(holders.of(link), MAX_HOLDERS)
        if _mode(holders, holder, descriptor) in (other, os.O_RDWR)
    }
    others = frozenset(found - {pid})
    does = "writes" if reads else "reads"
    if others:
        verb = does if len(others) == 1 else does[:-1]
        return OtherEnd(Kind.PIPE, f"a pipe that {people(others)} {verb}", others)
    if pid in found:
        return OtherEnd(Kind.PIPE, "a pipe of its own", own=True)
    return OtherEnd(Kind.PIPE, f"a pipe, and nobody who {does} it can be seen")


def _mode(holders: Holders, pid: int, descriptor: int) -> int | None:
    for words in holders.information(pid, descriptor):
        if words[:1] == ["flags:"]:
            return int(words[1], 8) & os.O_ACCMODE
    return None
