"""The ranks of a command that keep no record: their names, and whether one spins while another
waits.

CPU use does not distinguish spinning from work, so this uses the agent's criterion of work
(`ranks.work`).  That alone would call light programs still: a rank that computes in its own buffers
takes no memory, and its messages may be small.  So, in addition, no rank may move a single byte,
and a rank must not run at all: a rank that waits for a working one is woken by its messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import TICKS_PER_SECOND, ProcessStat, Procfs
from stagewatch.inspect.processes import stand_still
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.family_io import FamilyIo
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.stacks import StackTaker, Take, stack
from stagewatch.ranks.work import SOCKETS_AGE_SECONDS, Stillness, WorkCollector
from stagewatch.run.stillness import Still

WORK_SECONDS = 5.0
"""Time between two looks at the work of ranks."""
RESCAN_SECONDS = 5.0
"""Time between two readings of all environments: launchers set them by execve."""
LOOKS = 10
"""How often the stacks of ranks without work are looked at before they count as still: each time
that their work is, since a rank that others leave no core stands at one place for seconds."""


@dataclass(slots=True)
class _Sleep:
    """A rank that sleeps, with what shows whether it has run since."""

    since: float
    switches: int
    """Number of times that its first thread has gone to sleep."""
    processes: Mapping[int, ProcessStat]

    def goes_on(self, now: _Sleep) -> bool:
        """Whether the rank is still in the same sleep."""
        seconds = max(now.since - self.since, 1.0)
        return (
            self.switches == now.switches
            and self.processes.keys() == now.processes.keys()
            and stand_still(self.processes, now.processes, seconds)
        )


class BareRanks:
    """The ranks among the processes of a command, by the variables that launchers set."""

    def __init__(
        self,
        command: Callable[[], list[Rank]],
        pids: Callable[[], Iterable[int]],
        proc: Procfs,
        *,
        limit: float,
        taker: StackTaker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`command`: the rank that stands for processes which are not ranks; `pids`: all processes;
        `limit`: seconds without work after which ranks count as standing still."""
        self._proc = proc
        self._limit = limit
        self._clock = clock
        self._command = command
        self._taker = taker
        self._files = GuardedFiles(proc.root)
        self._scan = EnvironmentScan(
            proc, self._files, every=0.0, afresh=RESCAN_SECONDS, pids=pids, clock=clock
        )
        self._ranks: list[Rank] = []
        self._held: dict[RankKey, tuple[int, float]] = {}
        """The process of each rank, and when it was last alive, in ticks since the boot."""
        self.names: dict[tuple[int, int], str] = {}
        """`rank 3`, by pid and start in ticks since the boot; also of those that have ended."""
        families = ProcessFamilies(self._heads, proc, clock=clock)
        self._io = FamilyIo(families, self._files, clock=clock)
        self._sockets = RankSockets(families, proc.root, self._files, clock=clock)
        self._stillness = Stillness(clock)
        self._work = WorkCollector(
            self._heads, self._io, self._sockets, stillness=self._stillness, clock=clock
        )
        self._looked_at = self._moved_at = clock()
        self._looks: list[Mapping[int, Take]] = []
        self._sleeps: dict[RankKey, _Sleep] = {}
        self.still: Still | None = None
        """The present standstill of the ranks, once it has lasted long."""

    def look(self, recorded: Collection[int]) -> None:
        """Find the ranks; `recorded`: the processes with a record, which shows that they are
        ranks."""
        now, ranks = time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_SECOND, []
        for rank in self._scan.ranks(recorded):
            pid, lived = self._held.get(rank.key, (rank.pid, 0.0))
            began = rank.start_ticks or 0
            if rank.pid == pid or began > lived:  # not a child that outlives its rank
                self._held[rank.key] = rank.pid, now
                self.names[rank.pid, began] = f"rank {rank.rank}"
                ranks.append(rank)
        self._ranks = ranks
        if len(ranks) < 2:
            self.still = None

    def due(self) -> bool:
        """Whether another look at the work of ranks is due; a single rank waits for no other
        here."""
        return len(self._ranks) > 1 and self._clock() - self._looked_at >= WORK_SECONDS

    def look_at_work(self) -> None:
        """Look whether ranks and the other processes work; always call this in the same thread.

        Raises `SourceError` if that cannot be read.
        """
        ranks, still = self._ranks, None
        self._looked_at = now = self._clock()
        try:
            asleep = self._asleep(ranks, now)
            since = self._idle_since(ranks)
            if not asleep or since is None or now - since < self._limit:
                self._looks.clear()
            elif self._moves([one for one in ranks if one not in asleep]):
                self._moved_at = now
            elif len(self._looks) == LOOKS:
                still = Still(since, now, len(ranks), tuple(one.rank for one in asleep))
        finally:
            self.still = still

    def _idle_since(self, ranks: Iterable[Rank]) -> float | None:
        """Since when no process works and no rank moves a byte; `None` if unknown."""
        # Raises if sockets cannot be read; the collector would go on without them.
        self._sockets.look(SOCKETS_AGE_SECONDS)
        denied, keys = self._work.collect().denied, [rank.key for rank in ranks]
        since, silent = self._stillness.since, self._stillness.silent
        if denied or not all(key in silent for key in keys):
            return None
        return max(self._moved_at, *since.values(), *(silent[key] for key in keys))

    def _asleep(self, ranks: Iterable[Rank], now: float) -> list[Rank]:
        """The ranks that have not run for so long, and whose children have not either."""
        look = self._io.look().families
        sleeps, self._sleeps = self._sleeps, {}
        for rank in ranks:
            scheduling = self._proc.scheduling(rank.pid, rank.pid)
            pids = look.members.get(rank.key, ())
            if scheduling is None or not pids:
                continue
            processes = {pid: look.processes[pid] for pid in pids}
            sleep = _Sleep(now, scheduling.voluntary, processes)
            before = sleeps.get(rank.key)
            self._sleeps[rank.key] = before if before and before.goes_on(sleep) else sleep
        began = {key: sleep.since for key, sleep in self._sleeps.items()}
        return [rank for rank in ranks if now - began.get(rank.key, now) >= self._limit]

    def _moves(self, ranks: Sequence[Rank]) -> bool:
        """Whether the training thread of one of them is seen to go from place to place."""
        if len(self._looks) < LOOKS:
            self._looks.append(self._taker.take(ranks))
        takes = ([look.get(one.pid, Take()) for look in self._looks] for one in ranks)
        stacks = [stack(*of_one) for of_one in takes if len(of_one) > 1]
        return any(one.group and not one.still for one in stacks)

    def close(self) -> None:
        """End the child that reads files; a look in progress fails."""
        self._files.close()
        self._sockets.close()

    def _heads(self) -> list[Rank]:
        return [*self._ranks, *self._command()]
