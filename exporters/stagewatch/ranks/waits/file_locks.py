"""Locks of files, by flock(2) and fcntl(2): who holds the lock that a process waits for.

`/proc/locks` has a line for the holder of a lock, and below it lines with `->` for those that wait
for it; see proc_locks(5).  A lock by flock belongs to all processes that have the file open after a
fork.
"""

from __future__ import annotations

from collections.abc import Iterable

from stagewatch.ranks.waits.holders import Holders
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids

F_SETLKW, F_OFD_SETLKW = 7, 38
MAX_OPENERS = 256


def other_end(locks: bytes, holders: Holders, pid: int, link: str) -> OtherEnd:
    """Who holds the lock that a process waits for; `locks`: the content of `/proc/locks`."""
    words = f"a lock of {link or 'a file'}"
    holding = _holding(locks, pid)
    opened = holders.of(link)[:MAX_OPENERS] if link else []
    if holding > 0 and (not opened or holding in {opener for opener, _ in opened}):
        found = {holding}
    else:  # its process has ended, or the lock belongs to an open file and to no process
        found = {opener for opener, descriptor in opened if _has_lock(holders, opener, descriptor)}
    others = frozenset(found - {pid})
    if others:
        verb = "holds" if len(others) == 1 else "hold"
        return OtherEnd(Kind.LOCK, f"{words} that {name_pids(others)} {verb}", others)
    return OtherEnd(Kind.LOCK, f"{words}, whose holder is not on this node or cannot be seen")


def _holding(locks: bytes, pid: int) -> int:
    """The holder of the lock that a process waits for; -1 or 0 if no visible process holds it.

    A lock of an open file (F_OFD_SETLKW) has no process."""
    holder = 0
    for words in _lines(locks):
        if words[1] == "->":
            if len(words) > 5 and words[5] == str(pid):
                return holder
        else:
            holder = int(words[4]) if words[4].isdecimal() else 0
    return 0


def _lines(locks: bytes) -> Iterable[list[str]]:
    for line in locks.decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) > 5:
            yield words


def _has_lock(holders: Holders, pid: int, descriptor: int) -> bool:
    return any(words[:1] == ["lock:"] for words in holders.information(pid, descriptor))
