"""Pipes: a reader waits for the processes that may write, and a writer for those that may read."""

from __future__ import annotations

import os

from stagewatch.ranks.waits.holders import Holders
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids


def other_end(holders: Holders, pid: int, link: str, *, reads: bool) -> OtherEnd:
    """The processes that may write the pipe that a process reads, or read the pipe that it
    writes."""
    other = os.O_WRONLY if reads else os.O_RDONLY
    found = {holder for holder, mode in holders.modes(link) if mode in (other, os.O_RDWR)}
    others = frozenset(found - {pid})
    does = "writes" if reads else "reads"
    if others:
        verb = does if len(others) == 1 else does[:-1]
        return OtherEnd(Kind.PIPE, f"a pipe that {name_pids(others)} {verb}", others)
    if pid in found:
        return OtherEnd(Kind.PIPE, "a pipe of its own", own=True)
    return OtherEnd(Kind.PIPE, f"a pipe, and nobody who {does} it can be seen")
