"""Waits for the end of a child, by wait4(2) and waitid(2)."""

from __future__ import annotations

from collections.abc import Collection

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids
from stagewatch.ranks.waits.threads import read

P_ALL, P_PID, P_PGID, P_PIDFD = 0, 1, 2, 3


def signed(argument: int) -> int:
    """A register as a signed number of 32 bits."""
    argument &= 0xFFFFFFFF
    return argument - (1 << 32) if argument >= 1 << 31 else argument


def other_end(proc: Procfs, number: int, children: Collection[int]) -> OtherEnd:
    """The child whose end a process waits for; any child if the number is 0 or less, which may also
    stand for a process group.

    The number is that of the process's own PID namespace."""
    if number > 0:
        found = {child for child in children if number in (child, own_number(proc, child))}
    else:
        found = set(children)
    if not found:
        return OtherEnd(Kind.CHILD, "the end of a child that cannot be seen")
    return OtherEnd(Kind.CHILD, f"the end of {name_pids(found)}", frozenset(found))


def own_number(proc: Procfs, pid: int) -> int:
    """The number of a process in its own PID namespace; 0 if unknown."""
    path = f"{proc.root}/{pid}/status"
    raw = proc.patiently(pid, lambda: read(path)) or b""
    for line in raw.splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0
