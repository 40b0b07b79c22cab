"""Every process of the node, the processes of each rank, and counters summed over them.

A rank's data loaders, compilers and checkpoint writers are separate processes: its family is its
own process and all that descend from it.  A process that loses its parent stays in its family.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.records import Life

MAX_SHARE = 0.005
"""Share of a core that looks may cost; they are rarer if there are many processes."""
AFRESH_SECONDS = 60.0
"""How long a thread of the kernel, which belongs to no rank, is not read again: until then its
number is hardly given to a process."""


@dataclass(frozen=True, slots=True)
class Families:
    """One look at all processes."""

    processes: Mapping[int, ProcessStat]
    members: Mapping[RankKey, tuple[int, ...]]
    """The pids of every live rank, its own first."""
    rank_of: Mapping[int, RankKey]
    """The rank a process belongs to, by pid."""


class ProcessFamilies:
    """Shares one look at all processes among all collectors, for `fresh_for` seconds."""

    def __init__(
        self,
        ranks: Callable[[], Iterable[Rank]],
        proc: Procfs,
        *,
        fresh_for: float = 4.0,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """`cpu_clock` also counts the threads that read for this one."""
        self._ranks = ranks
        self._proc = proc
        self._fresh_for = fresh_for
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._wait = fresh_for
        self._afresh_at = float("-inf")
        self._last: dict[int, tuple[int, RankKey]] = {}
        """Start time and rank of every member at the last look."""
        self._families = Families({}, {}, {})

    def look(self) -> Families:
        """The families as they were at most a few seconds ago."""
        with self._lock:
            if self._looked is None or self._clock() - self._looked >= self._wait:
                began = self._cpu_clock()
                self._families = self._read()
                self._looked = self._clock()
                self._wait = max(self._fresh_for, (self._cpu_clock() - began) / MAX_SHARE)
            return self._families

    def rank_of_process(self) -> dict[int, tuple[RankKey, int]]:
        """By pid of a rank or of its descendant: the rank, and when the process began, in ticks
        since the boot."""
        look = self.look()
        own = {rank.pid: (rank.key, rank.start_ticks or 0) for rank in self._ranks()}
        return own | {
            pid: (key, look.processes[pid].start_ticks) for pid, key in look.rank_of.items()
        }

    def _read(self) -> Families:
        processes = self._processes()
        children: dict[int, list[int]] = defaultdict(list)
        for pid, stat in processes.items():
            children[stat.parent].append(pid)
        rank_of: dict[int, RankKey] = {}
        members: dict[RankKey, list[int]] = defaultdict(list)

        def adopt(pids: Iterable[int], key: RankKey) -> None:
            """These and their descendants, except for a rank that another rank has started."""
            waiting = list(pids)
            while waiting:
                pid = waiting.pop()
                if pid not in rank_of:
                    rank_of[pid] = key
                    members[key].append(pid)
                    waiting += children[pid]

        for rank in self._ranks():
            if rank.life is Life.ALIVE and rank.pid in processes and rank.pid not in rank_of:
                rank_of[rank.pid] = rank.key
                members[rank.key].append(rank.pid)
        for pid in list(rank_of):
            adopt(children[pid], rank_of[pid])
        for pid, (start_ticks, key) in self._last.items():
            process = processes.get(pid)
            if process and process.start_ticks == start_ticks and key in members:
                adopt([pid], key)
        self._last = {pid: (processes[pid].start_ticks, key) for pid, key in rank_of.items()}
        return Families(processes, {key: tuple(pids) for key, pids in members.items()}, rank_of)

    def _processes(self) -> dict[int, ProcessStat]:
        pids = self._proc.pids()
        before = self._families.processes
        if self._clock() - self._afresh_at >= AFRESH_SECONDS:
            self._afresh_at, before = self._clock(), {}
        kernel = {pid: before[pid] for pid in pids if pid in before and before[pid].kernel_thread}
        return kernel | self._proc.stats(pid for pid in pids if pid not in kernel)


class RankCounter:
    """A sum over processes or threads that come and go; it never falls while the owner is the same.

    When a member ends, its share leaves the sum; the total keeps what the member had counted.
    """

    def __init__(self) -> None:
        self._totals: dict[Hashable, tuple[Hashable, float, float]] = {}
        self._seen: set[Hashable] = set()

    def update(self, key: Hashable, owner: Hashable, value: float) -> float:
        """The total, now that the sum is `value`; a new owner (the rank's pid) starts afresh."""
        self._seen.add(key)
        last_owner, last, total = self._totals.get(key, (owner, 0, 0))
        total = value if last_owner != owner else total + max(0, value - last)
        self._totals[key] = (owner, value, total)
        return total

    def forget_unseen(self) -> None:
        """Drop every key that was not updated since the last call."""
        self._totals = {key: self._totals[key] for key in self._seen}
        self._seen = set()
