"""Whether a rank works, judged by its use of resources rather than by its marks of progress.

CPU time alone is no work: a rank that waits by polling uses a whole core.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Samples, gauge
from stagewatch.ranks.family_io import FamilyCounters, FamilyIo
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.model import RANK_LABELS, Rank, RankKey
from stagewatch.ranks.wait_class import BUSY_PAGE_FAULTS, STRAY_PAGE_FAULTS

WINDOW_SECONDS = 10.0
"""The time that is judged."""
TRICKLE_BYTES_PER_SECOND = 64 << 10
"""So few bytes are no work.  A rank that hangs writes its log, answers scrapes of its own metrics
(some 50 KiB every 15 s), beats the heart of its rendezvous and of an experiment tracker (some
10 KiB every 10 s); a rank that loads, saves or exchanges moves MiB a second."""
COMPUTING = 0.1
"""A process computes if it uses so many cores; a monitor that runs nvidia-smi uses less."""
SOCKETS_AGE_SECONDS = 4.0
"""How old the sockets may be; the collector `net` looks more often."""

AT_WORK = gauge(
    "rl_rank_at_work",
    "1 while, over the last 10 s, the rank took new memory by computing (by compute), moved more "
    "than 64 KiB/s of files, pipes or TCP (io), or the processes it has started did either "
    "(children); absent otherwise.",
    (*RANK_LABELS, "by"),
)
STILL = gauge(
    "rl_rank_still_seconds",
    "Time since a rank that has made no mark, with or without a stage record, last worked or "
    "started a process, as far as the agent saw it.",
    RANK_LABELS,
)


@dataclass(slots=True)
class _Done:
    """The use of resources by processes, so far or between two looks."""

    cpu_seconds: float = 0.0
    page_faults: int = 0
    moved_bytes: int = 0

    def add(self, now: _Done, before: _Done) -> None:
        self.cpu_seconds += max(0.0, now.cpu_seconds - before.cpu_seconds)
        self.page_faults += max(0, now.page_faults - before.page_faults)
        self.moved_bytes += max(0, now.moved_bytes - before.moved_bytes)

    def computes(self, seconds: float = WINDOW_SECONDS) -> bool:
        """Whether this is computing, if done within this time."""
        enough = max(STRAY_PAGE_FAULTS, BUSY_PAGE_FAULTS * self.cpu_seconds)
        return self.cpu_seconds > COMPUTING * seconds and self.page_faults > enough

    def moves(self, seconds: float = WINDOW_SECONDS) -> bool:
        """Whether this is more than a trickle, if done within this time."""
        return self.moved_bytes > TRICKLE_BYTES_PER_SECOND * seconds


_NOTHING = _Done()


@dataclass(slots=True)
class Stillness:
    """How long ranks without marks have stood still, for other collectors."""

    clock: Callable[[], float] = time.monotonic
    since: Mapping[RankKey, float] = field(default_factory=dict)
    """When each rank was last seen to move."""
    silent: Mapping[RankKey, float] = field(default_factory=dict)
    """When each was last seen to read or write a byte, be it a trickle."""

    def seconds(self, key: RankKey) -> float | None:
        """`None` for a rank that is unknown or makes marks."""
        since = self.since.get(key)
        return None if since is None else self.clock() - since


@dataclass(slots=True)
class _Rank:
    """What is remembered of one rank."""

    pid: int
    alive: float
    """When it was last seen at work or to start a process."""
    moved: float
    """When it was last seen to read or write a byte."""
    processes: dict[int, _Done] = field(default_factory=dict)
    """The processes at the last look."""
    connections: dict[int, int] = field(default_factory=dict)
    """Bytes by connection at the last look."""
    window: deque[tuple[float, _Done, _Done]] = field(default_factory=deque)
    """By look: its time, and the use by the rank and by its children since the look before."""


class WorkCollector(Collector):
    """Compares the use of resources by the families of all ranks between looks."""

    def __init__(
        self,
        ranks: Callable[[], Iterable[Rank]],
        io: FamilyIo,
        sockets: RankSockets,
        *,
        stillness: Stillness | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stillness = stillness or Stillness(clock)
        self._ranks = ranks
        self._io = io
        self._sockets = sockets
        self._clock = clock
        self._known: dict[RankKey, _Rank] = {}

    def collect(self) -> Samples:
        look = self._io.look()
        if not look.families.members:
            raise NoData("no rank on this node")
        now = self._clock()
        tell = {rank.key for rank in self._ranks() if rank.record and rank.record.progress}
        connections = self._connections()
        known, self._known = self._known, {}
        out = Samples(denied=look.denied)
        still: dict[RankKey, float] = {}
        silent: dict[RankKey, float] = {}
        for key, pids in look.families.members.items():
            rank = known.get(key)
            first = rank is None or rank.pid != pids[0]
            if rank is None or first:
                rank = _Rank(pids[0], now, now)
            self._known[key] = rank
            started = _look(rank, pids, look, connections.get(key, {}), now, first=first)
            by = _work(rank)
            for name in by:
                out.add(AT_WORK, 1, *key, name)
            if started or (by and _goes_on(rank)):
                rank.alive = now
            if key not in tell and pids[0] in look.by_pid:
                out.add(STILL, now - rank.alive, *key)
                still[key], silent[key] = rank.alive, rank.moved
        self._stillness.since, self._stillness.silent = still, silent
        return out

    def _connections(self) -> dict[RankKey, dict[int, int]]:
        """Bytes of each TCP connection of every rank, as far as they are known."""
        try:
            owned = self._sockets.look(SOCKETS_AGE_SECONDS).owned
        except SourceError:
            return {}
        return {
            key: {
                one.cookie: one.statistics.bytes_acknowledged + one.statistics.bytes_received
                for one in sockets
                if one.statistics is not None
            }
            for key, sockets in owned.items()
        }


def _look(
    rank: _Rank,
    pids: tuple[int, ...],
    look: FamilyCounters,
    connections: dict[int, int],
    now: float,
    *,
    first: bool,
) -> bool:
    """Add one look; returns whether the rank has started a process since the last."""
    processes = {pid: _so_far(pid, look, rank.processes.get(pid, _NOTHING)) for pid in pids}
    own, children = _Done(), _Done()
    if not first:
        for pid, done in processes.items():
            (own if pid == rank.pid else children).add(done, rank.processes.get(pid, _NOTHING))
        for cookie, count in connections.items():
            own.moved_bytes += max(0, count - rank.connections.get(cookie, 0))
    if own.moved_bytes or children.moved_bytes:
        rank.moved = now
    started = not first and not processes.keys() <= rank.processes.keys()
    rank.processes, rank.connections = processes, connections
    rank.window.append((now, own, children))
    while now - rank.window[0][0] >= WINDOW_SECONDS:
        rank.window.popleft()
    return started


def _so_far(pid: int, look: FamilyCounters, before: _Done) -> _Done:
    stat = look.families.processes[pid]
    io = look.by_pid.get(pid)
    moved = before.moved_bytes if io is None else io["read", "call"] + io["write", "call"]
    return _Done(stat.user_seconds + stat.system_seconds, stat.page_faults, moved)


def _work(rank: _Rank) -> list[str]:
    """The resources that show work of the rank."""
    own, children = _Done(), _Done()
    for _, mine, theirs in rank.window:
        own.add(mine, _NOTHING)
        children.add(theirs, _NOTHING)
    ways = {
        "compute": own.computes(),
        "io": own.moves(),
        "children": children.computes() or children.moves(),
    }
    return [name for name, is_so in ways.items() if is_so]


def _goes_on(rank: _Rank) -> bool:
    """Whether the last look alone shows work, without the earlier ones of the window."""
    if len(rank.window) == 1:
        return True
    (before, *_), (now, *latest) = rank.window[-2], rank.window[-1]
    return any(done.computes(now - before) or done.moves(now - before) for done in latest)


def working(before: FamilyCounters, after: FamilyCounters, seconds: float) -> set[RankKey]:
    """The ranks that were at work, or whose children were, between two looks so many seconds apart.

    Data over TCP does not count here.
    """
    found = set()
    for key, pids in after.families.members.items():
        own, children = _Done(), _Done()
        for pid in pids if key in before.families.members else ():
            known = pid in before.families.processes
            was = _so_far(pid, before, _NOTHING) if known else _NOTHING
            (own if pid == pids[0] else children).add(_so_far(pid, after, was), was)
        if any(done.computes(seconds) or done.moves(seconds) for done in (own, children)):
            found.add(key)
    return found


SPEC = Declaration(
    name="work",
    help="whether ranks compute, move bytes or have children that do",
    interval=5.0,
    options=NoOptions,
)
