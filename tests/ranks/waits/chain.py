"""Follows who waits for whom to those who wait for nobody, as the judge does between ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stagewatch.ranks.waits.ends import waits_of
from stagewatch.ranks.waits.model import State, Waiting


class Ends(NamedTuple):
    """Where the waits lead to: who waits for nobody, and of whom nothing is known."""

    pids: tuple[int, ...]
    unseen: tuple[int, ...]


def ends(waiting: Waiting, pids: Iterable[int]) -> Ends:
    """Those that these processes wait for, directly or through others."""
    seen = list(dict.fromkeys(pids))
    found, unseen = [], []
    for pid in seen:  # grows meanwhile
        waits = waits_of(waiting, pid)
        following = [one for wait in waits for one in wait.targets]
        process = waiting.processes.get(pid)
        if (
            process is None
            or (process.state is State.UNKNOWN and process.lacking)
            or any(wait.unseen for wait in waits)
        ):
            unseen.append(pid)
        elif not following and not any(wait.remotes for wait in waits):
            found.append(pid)
        seen += [one for one in dict.fromkeys(following) if one not in seen]
    return Ends(tuple(found), tuple(unseen))
