"""The other end of a wait: what a thread waits for, and who holds it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stagewatch.ranks.waits.model import Connection, Kind

_NOBODY = (Kind.OWN, Kind.STORAGE, Kind.SLEEP, Kind.ACCEPT, Kind.DEVICE)

MAX_NAMED = 4
"""The most processes that are named in words; others are counted."""


@dataclass(frozen=True, slots=True)
class OtherEnd:
    """One thing that a thread waits for."""

    kind: Kind
    words: str
    """`a pipe that pid 4711 writes`."""
    pids: frozenset[int] = frozenset()
    """The processes that hold it, without the one that waits."""
    own: bool = False
    """Whether only the waiting process holds it: a pipe between its threads."""
    listens: bool = False
    """Whether it is a listening socket."""
    accepted: bool = False
    """Whether the other end has connected to this one, as clients do to a server."""
    weak: bool = False
    """Whether the other end owes nothing: an idle connection, kept for later."""
    connection: Connection | None = None

    @property
    def unseen(self) -> bool:
        """Whether the other end is held by a process that cannot be seen."""
        known = self.own or self.listens or self.pids or self.kind in _NOBODY
        return not known and not (self.connection and self.connection.leaves)


def name_pids(pids: Collection[int]) -> str:
    """`pid 4711`, `pids 1 and 2`, or `pids 1, 2, 3, 4 and 17 more`."""
    first, more = sorted(pids)[:MAX_NAMED], len(pids) - MAX_NAMED
    words = [str(pid) for pid in first]
    if more > 0:
        words.append(f"{more} more")
    told = " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
    return f"{'pid' if len(pids) == 1 else 'pids'} {told}"
