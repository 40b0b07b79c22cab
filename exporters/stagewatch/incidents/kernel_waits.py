"""The waits of the ranks of a job as the kernel shows them: for other ranks, and for processes that
are not ranks.

A helper process of a rank counts as the rank itself: a process that waits for the data loader of a
rank waits for that rank, and a rank that waits for its own loader waits for nobody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from stagewatch.host.procfs import Procfs
from stagewatch.judgement.facts import ABANDONED, ANYBODY, KernelWait
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.servers import Gone, Repeated
from stagewatch.ranks.waits.ends import waits_of
from stagewatch.ranks.waits.model import Kind, Mode, Process, State, Wait, Waiting
from stagewatch.ranks.waits.naming import called

MAX_WAITS = 16
"""The most waits of one rank."""
MAX_ANCESTORS = 16
MAX_ENDS = 256
"""The most far ends that one rank exports."""

NOTHING = KernelWait("")
"""The kernel was asked, and does not show whom a rank waits for."""
_IN = {
    Kind.PIPE: "a read of a pipe",
    Kind.UNIX: "a receive from a socket",
    Kind.TCP: "a receive from a connection",
    Kind.SEVERAL: "a poll of several pipes and sockets",
    Kind.FUTEX: "a lock in shared memory",
    Kind.CHILD: "a wait for the end of a process",
    Kind.LOCK: "a lock of a file",
    Kind.OWN: "a wait for a thread or process of its own",
    Kind.STORAGE: "a call to storage",
    Kind.ACCEPT: "a wait for the next request",
}
_OUT = {
    Kind.PIPE: "a write to a full pipe",
    Kind.UNIX: "a send to a full socket",
    Kind.TCP: "a send to a full connection",
}
_IN_VAIN = "a connection that nobody accepts"
_AGAIN = "calls that are tried again and again"
NO_SERVERS: Mapping[RankKey, Gone] = MappingProxyType({})
NONE_ASKED: Mapping[RankKey, Repeated] = MappingProxyType({})
_BUSY = (State.RUNNING, State.STOPPED, State.STORAGE, State.GONE, State.ZOMBIE)
"""States of a process that calls nobody."""
_STUCK = (State.INWARD, State.STORAGE)
"""States of a process that does not go on by itself.  A sleeping one may be about to look again."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A task of Ray that a process waits for."""

    pid: int
    """The process on this node that runs it; 0 if none does."""
    task: str
    who: str
    """Who should run it, in words."""


def kernel_waits(
    waiting: Waiting,
    ranks: Iterable[Rank],
    proc: Procfs,
    ray: Mapping[int, Sequence[Awaited]] | None = None,
    gone: Mapping[RankKey, Gone] = NO_SERVERS,
    asked: Mapping[RankKey, Repeated] = NONE_ASKED,
) -> dict[RankKey, tuple[KernelWait, ...]]:
    """The waits of the ranks that were looked at, at least `NOTHING` for each.

    `ray`: for a job in Ray, the tasks that processes wait for.  `gone`: the ended servers of ranks;
    `asked`: the servers that ranks ask again and again.
    """
    if ray is not None:
        waiting = replace(waiting, waits=tuple(filter(partial(_counts, waiting), waiting.waits)))
    job = _Job(waiting, ranks, proc, gone, asked)
    found = {
        rank.key: job.waits(rank) or (NOTHING,)
        for rank in job.ranks.values()
        if rank.pid in waiting.processes
    }
    return found if ray is None else found | dict(job.in_ray(found, ray))


def far_ends(
    waiting: Waiting, ranks: Iterable[Rank], proc: Procfs
) -> dict[RankKey, tuple[KernelWait, ...]]:
    """The waits of the far ends of connections, for ranks of other nodes that wait for these.

    A wait has the address of the connection as the other node sees it.  It is a wait for the rank
    that holds the connection here, or a wait of the process that holds it.  The key is a rank here,
    which exports the waits."""
    job = _Job(waiting, ranks, proc)
    found: defaultdict[RankKey, tuple[KernelWait, ...]] = defaultdict(tuple)
    for one in waiting.connections if job.ranks else ():
        for pid in one.owners:
            rank = job.ranks.get(pid)
            key = (rank or next(iter(job.ranks.values()))).key
            address = f"{one.local} from {one.remote}"
            held = [KernelWait("", rank.role, rank.rank)] if rank else job.behind(pid)
            room = MAX_ENDS - len(found[key])
            found[key] += tuple(replace(wait, address=address) for wait in held[:room])
    return found


class _Job:
    """The ranks of a job on this node, and the processes that they wait for."""

    def __init__(
        self,
        waiting: Waiting,
        ranks: Iterable[Rank],
        proc: Procfs,
        gone: Mapping[RankKey, Gone] = NO_SERVERS,
        asked: Mapping[RankKey, Repeated] = NONE_ASKED,
    ) -> None:
        self.ranks = {rank.pid: rank for rank in ranks if rank.pid}
        self._waiting = waiting
        self._proc = proc
        self._gone = gone
        self._asked = asked

    def waits(self, rank: Rank) -> tuple[KernelWait, ...]:
        """The waits of a rank."""
        found = self._follow(rank.pid, "", rank)
        # A helper that does not go on counts only if the rank waits for nobody else.
        outward = [wait for wait in found if not wait.waits_for_nobody]
        return tuple(outward or found)[:MAX_WAITS]

    def behind(self, pid: int) -> list[KernelWait]:
        """The waits of a client on another node: those of the process here that it has called,
        which is not a rank."""
        return [wait for wait in self._follow(pid, _IN[Kind.TCP], None) if not wait.address]

    def _follow(self, first: int, first_how: str, rank: Rank | None) -> list[KernelWait]:
        """The waits of a process for ranks and addresses, and for processes at which waits end;
        processes that are not ranks are followed.

        `rank`: the waiting rank, if it is on this node."""
        found: dict[KernelWait, None] = {}
        todo = [(first, first_how)]
        seen = {first}
        while todo:
            pid, how = todo.pop()
            waits = waits_of(self._waiting, pid)
            unclear = any(_unclear(wait) for wait in waits)
            if rank and (unclear or not waits) and (ended := self._ended(rank, pid)):
                found |= {KernelWait(how or _IN_VAIN, process=name): None for name in ended}
                continue
            if rank and (unclear or not waits) and (asked := self._repeats(rank, pid)):
                found |= dict.fromkeys(asked)
                continue
            if unclear:
                continue
            if not waits:
                found |= dict.fromkeys(self._end(rank, pid, how))
            for wait in waits:
                mine = how or _how(wait)
                for one in wait.remotes:
                    address = f"{one.remote} from {one.local}"
                    found[KernelWait(mine, address=address)] = None
                for target in set(wait.targets) - seen:
                    seen.add(target)
                    other = self._owner(target)
                    if other in (None, rank):
                        todo.append((target, mine))
                    else:
                        found[KernelWait(mine, other.role, other.rank)] = None
        return list(found)

    def in_ray(
        self, kernel: Mapping[RankKey, tuple[KernelWait, ...]], ray: Mapping[int, Sequence[Awaited]]
    ) -> Iterator[tuple[RankKey, tuple[KernelWait, ...]]]:
        """The waits of the ranks of a Ray job: for the ranks that run their tasks.  A rank without
        a task waits for the next one, and is not at fault."""
        for pid, rank in self.ranks.items():
            if found := [wait for one in ray.get(pid, ()) if (wait := self._task(rank, one))]:
                yield rank.key, tuple(dict.fromkeys(found))
            elif pid not in ray:
                outward = tuple(
                    wait for wait in kernel.get(rank.key, ()) if not wait.waits_for_nobody
                )
                yield rank.key, outward or (NOTHING,)

    def _task(self, rank: Rank, one: Awaited) -> KernelWait | None:
        # A helper of a rank does not count: all processes of Ray may be below the driver.
        owner = self.ranks.get(one.pid)
        if owner is None:
            return KernelWait("a task of Ray", process=one.who)
        how = f"{one.task} of Ray"
        return None if owner is rank else KernelWait(how, owner.role, owner.rank)

    def _ended(self, rank: Rank, pid: int) -> tuple[str, ...]:
        """The ended servers that a process called, if it waits for nobody else; for a rank also
        those that its servers called."""
        process, gone = self._waiting.processes.get(pid), self._gone.get(rank.key, {})
        if process is None or process.state in _BUSY:
            return ()
        mine = gone.values() if self._owner(pid) is rank else (gone.get(pid, ()),)
        return tuple(name for names in mine for name in names)

    def _repeats(self, rank: Rank, pid: int) -> list[KernelWait]:
        """The waits of a rank that asks servers again and again and waits for nobody else.

        A server may be a queue, so the rank also waits for the ranks that call it."""
        process = self._waiting.processes.get(pid)
        if pid != rank.pid or process is None or process.state in (*_BUSY, State.INWARD):
            return []
        found = []
        for name, callers in self._asked.get(rank.key, {}).items():
            found.append(KernelWait(_AGAIN, through=name))
            owners = {owner.key: owner for one in sorted(callers) if (owner := self._owner(one))}
            found += [
                KernelWait(_AGAIN, one.role, one.rank, through=name)
                for one in owners.values()
                if one is not rank
            ]
        return found

    def _end(self, rank: Rank | None, pid: int, how: str) -> Iterator[KernelWait]:
        """The waits that end at a process which waits for nobody; for the rank itself or its helper
        only if the process cannot go on."""
        process = self._waiting.processes.get(pid)
        if process is None or process.state in (State.GONE, State.UNKNOWN):
            return
        if rank is None or (pid != rank.pid and self._owner(pid) is not rank):
            name = called(process.arguments or process.command, process.pid, process.job)
            requests = [one for one in self._waiting.of(pid) if one.mode is Mode.ANYBODY]
            if requests and how in _OUT.values():
                return  # the process takes data; the delay lies between the two
            yield KernelWait(how, through=name) if requests else KernelWait(how, process=name)
            for other in self._clients(requests):
                if other is not rank:
                    yield KernelWait(how, other.role, other.rank, through=name)
            for one in self._waiting.connections if requests else ():
                if one.accepted and pid in one.owners:
                    address = f"{one.remote} from {one.local}"
                    yield KernelWait(how, address=address, through=name)
        elif process.state is State.WAITING and pid == rank.pid and self._waits_for_anybody(pid):
            yield KernelWait(_IN[Kind.ACCEPT], process=ANYBODY)
        elif process.state is State.WAITING:  # a server that has not answered
            yield KernelWait(how or "an answer that it owes")
        elif process.state in _STUCK:
            yield KernelWait(how or self._in(process))

    def _in(self, process: Process) -> str:
        """How a process that cannot go on by itself waits."""
        if process.state is State.STORAGE:
            return _IN[Kind.STORAGE]
        mine = (one for one in self._waiting.of(process.pid) if one.thread == process.thread)
        alone = any(wait.kind in _OUT and not wait.writes for wait in mine)
        return ABANDONED if alone else _IN[Kind.OWN]

    def _waits_for_anybody(self, pid: int) -> bool:
        """Whether a process waits for requests, and has no client."""
        requests = [one for one in self._waiting.of(pid) if one.mode is Mode.ANYBODY]
        return bool(requests) and not any(one.targets or one.connections for one in requests)

    def _clients(self, requests: Iterable[Wait]) -> Iterator[Rank]:
        """The ranks connected to a server that waits for requests.  If it is a queue or a store, it
        may need data from one of them to answer another."""
        for client in sorted({client for wait in requests for client in wait.targets}):
            if (owner := self._owner(client)) is not None:
                yield owner

    def _owner(self, pid: int) -> Rank | None:
        """The rank that a process is, or is a helper of."""
        for ancestor in self._ancestors(pid):
            if ancestor in self.ranks:
                return self.ranks[ancestor]
        return None

    def _ancestors(self, pid: int) -> Iterator[int]:
        """A process and its ancestors, itself first."""
        for _ in range(MAX_ANCESTORS):
            if pid <= 1:
                return
            yield pid
            stat = self._proc.stat(pid)
            pid = stat.parent if stat else 0


def _counts(waiting: Waiting, wait: Wait) -> bool:
    """Whether a wait is of the thread that counts: other threads of a process in Ray keep its
    connections with all processes of Ray."""
    process = waiting.processes.get(wait.pid)
    return process is None or wait.thread == process.thread


def _unclear(wait: Wait) -> bool:
    """Whether the wait does not show whom the process waits for."""
    return wait.unseen or wait.idle or wait.kind in (Kind.DEVICE, Kind.OTHER)


def _how(wait: Wait) -> str:
    """The call of a wait in words."""
    if wait.mode is Mode.ANYBODY:
        return _IN[Kind.ACCEPT]
    words = _OUT if wait.writes else _IN
    return words.get(wait.kind, "a wait that the kernel shows")
