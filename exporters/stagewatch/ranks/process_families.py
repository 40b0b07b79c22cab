"""Every process of the node in one look, and which of them belong to which rank.

A rank's data loaders, compilers and checkpoint writers are processes of their own: its family is
its process and all that descend from it.  One that loses its parent stays in the family that it was
last seen in.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.ranks.index import RankIndex, RankKey

MAX_SHARE = 0.005
"""Share of a core that looking may cost: on a node with very many processes one looks less."""


@dataclass(frozen=True, slots=True)
class Families:
    """One look at all processes."""

    processes: Mapping[int, ProcessStat]
    members: Mapping[RankKey, tuple[int, ...]]
    """The pids of every live rank, its own first."""
    rank_of: Mapping[int, RankKey]
    """The rank a process belongs to, by pid."""


class ProcessFamilies:
    """Looks at most once in `fresh_for` seconds, for all collectors that ask."""

    def __init__(
        self,
        ranks: RankIndex,
        proc: Procfs,
        *,
        fresh_for: float = 4.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = ranks
        self._proc = proc
        self._fresh_for = fresh_for
        self._clock = clock
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._wait = fresh_for
        self._known: dict[int, tuple[int, RankKey]] = {}
        self._families = Families({}, {}, {})

    def look(self) -> Families:
        """The families as they were at most a few seconds ago."""
        with self._lock:
            began = self._clock()
            if self._looked is None or began - self._looked >= self._wait:
                self._families = self._read()
                self._looked = self._clock()
                self._wait = max(self._fresh_for, (self._looked - began) / MAX_SHARE)
            return self._families

    def _read(self) -> Families:
        found = ((pid, self._proc.stat(pid)) for pid in self._proc.pids())
        processes = {pid: stat for pid, stat in found if stat is not None}
        children: dict[int, list[int]] = defaultdict(list)
        for pid, stat in processes.items():
            children[stat.parent].append(pid)
        rank_of: dict[int, RankKey] = {}
        members: dict[RankKey, list[int]] = {}
        for rank in self._ranks.processes():
            if rank.pid in processes and rank.pid not in rank_of:
                rank_of[rank.pid] = rank.key
                members.setdefault(rank.key, []).append(rank.pid)
        for pid in list(rank_of):
            self._adopt(children[pid], rank_of[pid], processes, children, rank_of, members)
        for pid, (start_ticks, key) in self._known.items():
            process = processes.get(pid)
            if process and process.start_ticks == start_ticks and key in members:
                self._adopt([pid], key, processes, children, rank_of, members)
        self._known = {pid: (processes[pid].start_ticks, key) for pid, key in rank_of.items()}
        return Families(processes, {key: tuple(found) for key, found in members.items()}, rank_of)

    @staticmethod
    def _adopt(
        pids: list[int],
        key: RankKey,
        processes: Mapping[int, ProcessStat],
        children: Mapping[int, list[int]],
        rank_of: dict[int, RankKey],
        members: dict[RankKey, list[int]],
    ) -> None:
        """These and their descendants, except for a rank that another rank has started."""
        waiting = list(pids)
        while waiting:
            pid = waiting.pop()
            if pid not in rank_of:
                rank_of[pid] = key
                members[key].append(pid)
                waiting += children.get(pid, [])
