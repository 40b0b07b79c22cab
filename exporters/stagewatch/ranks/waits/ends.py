"""Selects the waits of a process that explain why it does not go on."""

from __future__ import annotations

from collections.abc import Iterable

from stagewatch.ranks.waits.model import Mode, State, Wait, Waiting


def waits_of(waiting: Waiting, pid: int) -> tuple[Wait, ...]:
    """The waits of a process that explain why it does not go on.

    They are the waits of the thread that counts.  If that thread waits for the process itself or
    for anybody, or tries again and again, they are those of the other threads; idle connections
    count only without other waits.  If the process owes a client an answer, its wait for the next
    request does not count.
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
    """Whether a client of the process has sent a request and waits for the answer."""
    clients = {one for wait in requests for one in wait.targets}
    return any(
        _asked(wait, pid) for wait in waiting.waits if wait.pid in clients and pid in wait.targets
    )


def _asked(wait: Wait, pid: int) -> bool:
    to_it = [one for one in wait.connections if pid in one.holders]
    return any(one.owed for one in to_it) if to_it else not wait.connections
