"""The servers of this node to which ranks are connected, remembered after they have ended.

A refused rank closes its socket, sleeps and asks again, so the kernel does not show whom it asks.
Therefore the agent remembers the processes that listen at addresses of this node which ranks have
called.  It then follows whether such a process lives, and whom it calls itself, as a router calls
engines.  It also remembers when a rank last asked a server that runs.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stagewatch.core.errors import StagewatchError
from stagewatch.host.guarded import Files
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.families import MAX_SHARE, Families, ProcessFamilies
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.socket_diag import TcpSocket
from stagewatch.ranks.waits.naming import ENDED, called, shortened
from stagewatch.ranks.waits.tcp import Address, Table, is_loopback, local, remote

LOOK_SECONDS = 5.0
CALLS_SECONDS = 10.0
"""Time between looks at whom servers call, which read their descriptors and a dump of sockets."""
USED_SECONDS = 30.0
"""A rank still needs a server if it was connected so shortly before its last progress."""
AGAIN_SECONDS = 10.0
"""A rank that asks a server so long after its last step asks it again and again."""
KEPT_SECONDS = 900.0
"""How long a caller is remembered after it last called a server."""
BURST_SECONDS = 10.0
"""Searches of all processes may take so much time at once; in the long run, `MAX_SHARE` of it."""
MAX_ACCEPTED = 65_536
MAX_ADDRESSES = 256
"""The most called addresses that are remembered."""

Place = tuple[int, Address]
"""A network namespace, and an address in it at which a process listens."""
Held = Mapping[int, bytes | None]
"""The inodes of sockets by process."""
Gone = Mapping[int, tuple[str, ...]]
"""By process, the ended servers that it called."""
Repeated = Mapping[str, frozenset[int]]
"""By name of a server that a process asks again and again, all processes that call the server."""
Calls = defaultdict[Place, dict[int, float]]
"""By server, the connected processes, and when each last sent it data."""


@dataclass(slots=True)
class Server:
    """The processes that listen at an address."""

    name: str
    holders: Mapping[int, int]
    """By pid, when the process began, in ticks since the boot."""
    seen: float
    """When one of the holders was last seen to run."""
    callers: dict[int, float] = field(default_factory=dict)
    """By process, when it was last seen connected to the server."""
    asked: dict[int, float] = field(default_factory=dict)
    """By process, when it last sent data to the server."""


class Servers:
    """Remembers servers; `look` is cheap unless a rank calls a new address."""

    def __init__(
        self,
        sockets: RankSockets,
        families: ProcessFamilies,
        proc: Procfs,
        files: Files,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sockets = sockets
        self._families = families
        self._proc = proc
        self._files = files
        self._clock = clock
        self._due = self._calls_due = clock()
        self._spent = 0.0
        self._accepted: set[int] = set()
        """Sockets of servers that are not calls of theirs."""
        self._known: dict[Place, Server | None] = {}
        """By place, the server; `None` if nobody listens, or a rank or unseen process does."""

    def look(self) -> None:
        """Note which processes are connected to which servers, at most every few seconds."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        families = self._families.look()
        if not families.members or len(self._accepted) > MAX_ACCEPTED:
            self._accepted.clear()
        if not families.members:
            self._known.clear()
            return
        try:
            self._look(families, now)
        except StagewatchError:  # whoever collects sockets tells of it
            return

    def gone(self, pid: int, silent: float, late: float) -> Gone:
        """The ended servers that a process called until about its last progress, by the process
        that called them: itself or another of its servers.

        They must have ended between its last progress (`silent` seconds ago) and the time when it
        was overdue (`late` seconds ago)."""
        now = self._clock()
        began = now - silent - USED_SECONDS
        found: defaultdict[int, tuple[str, ...]] = defaultdict(tuple)
        servers = [server for server in self._known.values() if server is not None]
        callers, seen = [pid], {pid}
        while callers:
            caller = callers.pop()
            for server in servers:
                if server.callers.get(caller, -math.inf) < began:
                    continue
                if running := self._proc.running(server.holders):
                    callers += running - seen
                    seen |= running
                elif began <= server.seen <= now - late:
                    found[caller] += (f"{server.name}{ENDED}",)
        return found

    def asked(
        self, silent: Mapping[int, float], inside: Collection[int] = ()
    ) -> Mapping[int, Repeated]:
        """By process, the running servers that it asks again and again.

        `silent`: by process, the seconds since its last step; `inside`: those of these processes
        that wait in a collective.  What these ask, other threads of them ask, as those of Ray ask
        its control store all the time; nobody waits for it.  The process has sent data to the
        server well after that step; or it called the server until then, and connections to the
        server end as soon as they are made: within `AGAIN_SECONDS` at least two for each caller.
        """
        now = self._clock()
        began = {pid: now - seconds - USED_SECONDS for pid, seconds in silent.items()}
        tries = Counter(
            (namespace, at)
            for namespace, ended in self._sockets.ended(AGAIN_SECONDS).items()
            for one in ended
            for at in (local(one), remote(one))
        )
        found: dict[int, dict[str, frozenset[int]]] = {pid: {} for pid in silent}
        for place, server in self._known.items():
            if server is None or not self._proc.running(server.holders):
                continue
            called = {pid for pid in silent if server.callers.get(pid, -math.inf) >= began[pid]}
            refused = called if tries[place] >= 2 * len(called) else set()
            for pid in called:
                since = max(now - silent[pid] + AGAIN_SECONDS, now - USED_SECONDS)
                if server.asked.get(pid, -math.inf) >= since or pid in refused:
                    found[pid][server.name] = frozenset(server.callers)
        beside = {name for pid in inside for name in found[pid]}
        return {
            pid: {name: callers for name, callers in mine.items() if name not in beside}
            for pid, mine in found.items()
        }

    def _look(self, families: Families, now: float) -> None:
        """Find the present calls, the running ones of the known servers, and new servers."""
        look = self._sockets.look(LOOK_SECONDS)
        ranks = {local(one) for mine in look.owned.values() for one in mine}
        calls: Calls = defaultdict(dict)
        for key in look.places.keys() & families.members.keys():
            pid = families.members[key][0]
            for at, idle in _called(look.owned[key], ranks):
                mine = calls[look.places[key], at]
                mine[pid] = max(now - idle, mine.get(pid, 0.0))
        running = {
            place: pids
            for place, server in self._known.items()
            if server is not None and (pids := self._proc.running(server.holders))
        }
        if now >= self._calls_due:
            self._calls_due = now + CALLS_SECONDS
            held = self._files.read("sockets", set().union(*running.values()))
            for pid, place, idle in self._called_by(held, ranks):
                calls[place][pid] = now - idle
        self._search(calls, running.keys(), ranks, families, now)
        self._remember(calls, running.keys(), now)

    def _search(
        self,
        calls: Calls,
        running: Collection[Place],
        ranks: Collection[Address],
        families: Families,
        now: float,
    ) -> None:
        """Learn the processes that listen at places without a running server, and whom they call,
        as far as the time ration lasts."""
        new = {one for one in calls if one not in running and self._known.get(one, one) is not None}
        self._spent = max(0.0, self._spent - LOOK_SECONDS * MAX_SHARE)
        if not new or self._spent >= BURST_SECONDS:
            return
        held, tables = self._files.read("sockets", families.processes), self._tables()
        while new and len(self._known) < MAX_ADDRESSES:
            pids = self._learn(new, held, tables, families)
            new = set()
            for pid, place, idle in self._called_by({pid: held[pid] for pid in pids}, ranks):
                new |= {place} - self._known.keys()
                calls[place][pid] = now - idle
        self._spent += self._clock() - now

    def _remember(
        self, calls: Mapping[Place, Mapping[int, float]], running: Collection[Place], now: float
    ) -> None:
        """Note the calls, and forget old callers and servers."""
        for place, server in list(self._known.items()):
            if server is not None:
                server.seen = now if place in running else server.seen
                callers = server.callers | dict.fromkeys(calls.get(place, ()), now)
                server.callers = {
                    pid: at for pid, at in callers.items() if at >= now - KEPT_SECONDS
                }
                asked = server.asked | dict(calls.get(place, {}))
                server.asked = {pid: at for pid, at in asked.items() if pid in server.callers}
            if place not in calls and not (server and server.callers):
                del self._known[place]

    def _tables(self) -> dict[int, Table]:
        """The listening sockets, by network namespace."""
        sockets = self._sockets.every(listening=True)
        return {namespace: Table(mine) for namespace, mine in sockets.items()}

    def _called_by(
        self, held: Held, ranks: Collection[Address]
    ) -> Iterator[tuple[int, Place, float]]:
        """The calls of processes by their sockets: the process, the place that it is connected to,
        and for how many seconds it has sent nothing there."""
        pids = {int(inode): pid for pid, mine in held.items() for inode in (mine or b"").split()}
        for inode in self._accepted & pids.keys():
            del pids[inode]
        for namespace, sockets in self._sockets.every(pids.__contains__).items() if pids else ():
            of: defaultdict[int, list[TcpSocket]] = defaultdict(list)
            for one in sockets:
                of[pids[one.inode]].append(one)
            for pid, mine in of.items():
                listening = {one.local_port for one in mine if one.state == "listen"}
                for one in mine:
                    if one.state != "listen" and one.local_port in listening:
                        self._accepted.add(one.inode)
                for at, idle in _called(mine, ranks):
                    yield pid, (namespace, at), idle

    def _learn(
        self, places: Iterable[Place], held: Held, tables: Mapping[int, Table], families: Families
    ) -> set[int]:
        """Note the processes that listen at these places, and return them."""
        wanted = {
            one.inode: (namespace, at)
            for namespace, at in places
            if namespace in tables
            for one in tables[namespace].listeners(at)
        }
        found: defaultdict[Place, dict[int, int]] = defaultdict(dict)
        for pid, inodes in held.items():
            for inode in wanted.keys() & set(map(int, (inodes or b"").split())):
                found[wanted[inode]][pid] = families.processes[pid].start_ticks
        eldest = {place: min(pids, key=lambda pid: pids[pid]) for place, pids in found.items()}
        lines = self._files.read("cmdline", set(eldest.values()) - families.rank_of.keys())
        for place in places:
            pid = eldest.get(place, 0)
            if pid in lines:
                command = shortened(lines[pid] or b"") or families.processes[pid].command
                self._known[place] = Server(called(command, pid), found[place], self._clock())
            elif held.keys() >= families.processes.keys():  # one that does not answer may listen
                self._known.setdefault(place, None)
        return {pid for place, pids in found.items() if self._known.get(place) for pid in pids}


def _called(
    mine: Collection[TcpSocket], ranks: Collection[Address]
) -> Iterator[tuple[Address, float]]:
    """The addresses of this node to which a process is connected, without those of ranks, and for
    how many seconds it has sent nothing there."""
    listening = {one.local_port for one in mine if one.state == "listen"}
    for one in mine:
        there = remote(one)
        here = is_loopback(there[0]) or there[0] == local(one)[0]
        calls = one.state == "established" and one.local_port not in listening
        if calls and here and there not in ranks:
            yield there, one.statistics.last_sent if one.statistics else math.inf
