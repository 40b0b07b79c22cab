"""The end of a child, as wait4(2) and waitid(2) wait for it."""

from __future__ import annotations

from collections.abc import Collection

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids
from stagewatch.ranks.waits.threads import read

P_ALL, P_PID, P_PGID, P_PIDFD = 0, 1, 2, 3


def signed(argument: int) -> int:
    """A number of 32 bits in a register."""
    argument &= 0xFFFFFFFF
    return argument - (1 << 32) if argument >= 1 << 31 else argument


def other_end(proc: Procfs, number: int, children: Collection[int]) -> OtherEnd:
    """Whose end a process waits for: the child of that number, or any child; a negative number
    stands for a process group, of which more is not looked up.  A number is what the process itself
    calls its child, which another PID namespace calls otherwise."""
    if number > 0:
        found = {child for child in children if number in (child, own_number(proc, child))}
    else:
        found = set(children)
    if not found:
        return OtherEnd(Kind.CHILD, "the end of a child that cannot be seen")
    return OtherEnd(Kind.CHILD, f"the end of {name_pids(found)}", frozenset(found))


def own_number(proc: Procfs, pid: int) -> int:
    """What a process calls itself, in its own PID namespace; 0 where that is not known."""
    path = f"{proc.root}/{pid}/status"
    raw = proc.patiently(pid, lambda: read(path)) or b""
    for line in raw.splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0
