"""Follows who waits for whom, from some processes to those who wait for nobody themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stagewatch.ranks.waits.model import Connection, Mode, State, Wait, Waiting


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the waits lead to."""

    pids: tuple[int, ...] = ()
    """Processes that are waited for and wait for nobody; those first that cannot go on alone."""
    remotes: tuple[Connection, ...] = ()
    """Connections to other nodes, where it has to be followed further."""
    unseen: tuple[int, ...] = ()
    """Processes of which nothing is known, or that wait for somebody of whom nothing is."""
    perhaps: tuple[int, ...] = ()
    """Clients of a server among `pids` that wait for nobody and cannot go on alone: it may wait
    for them to bring what others have asked it for, as a queue or a store does."""


_STUCK = (State.STOPPED, State.ZOMBIE, State.GONE, State.STORAGE, State.SLEEPING, State.INWARD)


def ends(waiting: Waiting, pids: Iterable[int]) -> Ends:
    """Those that these processes wait for, directly or through others, and that wait for nobody.

    A process of several holders of a pipe or a lock that waits in turn is followed and not blamed.
    Where processes wait for one another in a circle, there is no end.
    """
    seen = dict.fromkeys(pids)
    todo = list(seen)
    found: dict[int, None] = {}
    remotes: dict[Connection, None] = {}
    unseen: dict[int, None] = {}
    while todo:
        pid = todo.pop()
        waits = waits_of(waiting, pid)
        following = [one for wait in waits for one in wait.targets]
        far = [one for wait in waits for one in wait.remotes]
        remotes |= dict.fromkeys(far)
        if _is_unseen(waiting, pid) or any(wait.unseen for wait in waits):
            unseen[pid] = None
        elif not (following or far):
            found[pid] = None
        todo += [one for one in dict.fromkeys(following) if one not in seen]
        seen |= dict.fromkeys(following)

    def goes_on(pid: int) -> bool:
        process = waiting.processes.get(pid)
        return process is None or process.state not in _STUCK

    clients = (
        client
        for pid in found
        for wait in waiting.of(pid)
        if wait.mode is Mode.ANYBODY
        for client in wait.targets
        if client not in seen and not waits_of(waiting, client) and not goes_on(client)
    )
    return Ends(
        tuple(sorted(found, key=goes_on)),
        tuple(remotes),
        tuple(unseen),
        tuple(dict.fromkeys(clients)),
    )


def _is_unseen(waiting: Waiting, pid: int) -> bool:
    """Whether nothing is known of a process: it was too far or one too many, or may not be seen."""
    process = waiting.processes.get(pid)
    return process is None or (process.state is State.UNKNOWN and bool(process.lacking))


def waits_of(waiting: Waiting, pid: int) -> tuple[Wait, ...]:
    """The waits of a process that say why it does not go on.

    They are those of the thread that counts; where that waits for the process itself, or for
    anybody, or tries again and again, those of the other threads, idle connections last.  A server
    that owes one of its clients an answer is not excused by its wait for the next request.
    """
    process = waiting.processes.get(pid)
    if process is None or process.state not in (State.WAITING, State.RETRYING, State.INWARD):
        return ()
    mine = waiting.of(pid)
    first = [wait for wait in mine if wait.thread == process.thread]
    if any(wait.outward or wait.unseen for wait in first):
        return tuple(first)
    others = tuple(wait for wait in mine if wait.outward or wait.unseen)
    if others:
        return tuple(wait for wait in others if not wait.idle) or others
    requests = tuple(wait for wait in mine if wait.mode is Mode.ANYBODY and wait.targets)
    return () if _owes(waiting, pid, requests) else requests


def _owes(waiting: Waiting, pid: int, requests: Iterable[Wait]) -> bool:
    """Whether one of those whose requests a process waits for has sent one, and waits for the
    answer."""
    clients = {one for wait in requests for one in wait.targets}
    return any(
        _asked(wait, pid) for wait in waiting.waits if wait.pid in clients and pid in wait.targets
    )


def _asked(wait: Wait, pid: int) -> bool:
    to_it = [one for one in wait.connections if pid in one.holders]
    return any(one.owed for one in to_it) if to_it else not wait.connections
