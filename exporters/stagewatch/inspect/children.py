"""Stacks of the processes that a rank has started: data loaders, pools, sandboxes.

If a rank waits for a child of its own, its own stack only shows the wait; the child's shows why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.model import Rank, RankKey
from stagewatch.ranks.stacks import Frame, Frames, Stack, Take, stack, users_frame

MAX_CHILDREN = 16
"""The most children of a rank whose stacks are taken: the youngest."""
MAX_OF_ALL = 64

_WAITS = re.compile(r"/multiprocessing/|/concurrent/futures/|/torch/utils/data/|/subprocess\.py$")


@dataclass(frozen=True, slots=True)
class Child:
    """A Python process among the descendants of a rank."""

    rank: RankKey
    process: Rank
    """Its process, in the form that `StackTaker` takes."""
    name: str


def children_of(ranks: Sequence[Rank], proc: Procfs) -> list[Child]:
    """The Python processes that these ranks have started."""
    families = ProcessFamilies(lambda: ranks, proc).look()
    found = []
    for rank in ranks:
        pids = [pid for pid in families.members.get(rank.key, ())[1:] if _is_python(proc, pid)]
        for pid in sorted(pids)[-MAX_CHILDREN:]:
            stat = families.processes[pid]
            process = replace(rank, pid=pid, start_ticks=stat.start_ticks, record=None)
            found.append(Child(rank.key, process, stat.command))
    return found[:MAX_OF_ALL]


def with_children(
    own: Stack, children: Sequence[Child], looks: Sequence[Mapping[int, Take]]
) -> Stack:
    """The stack of a rank with the stacks of its children that are in the user's own code.

    While the rank waits for a child, its line of code is that of the child."""
    threads, lines = list(own.threads), []
    for child in children:
        takes = [_without_parent(look.get(child.process.pid, Take())) for look in looks]
        if not takes[-1].threads or users_frame(takes[-1].threads[0][1]) is None:
            continue
        found = stack(*takes)
        title = f"child {child.process.pid} ({child.name})"
        threads += [(f"{title}, {name}", frames) for name, frames in found.threads[:1]]
        if found.still and found.frame:
            lines.append(found.frame)
    waits = bool(own.threads) and any(_WAITS.search(frame) for frame in _files(own))
    line = f"{own.frame} (its child at {lines[-1]})" if own.frame and lines and waits else own.frame
    return replace(own, threads=tuple(threads), frame=line)


def _files(own: Stack) -> list[str]:
    return [f"/{frame.partition('(')[2].rpartition(':')[0]}" for frame in own.threads[0][1]]


def _without_parent(take: Take) -> Take:
    """The stack without the frames of the parent, which a forked child still has."""

    def inner(frames: Frames) -> Frames:
        return tuple(takewhile(lambda frame: not _begins(frame), frames))

    return replace(take, threads=tuple((name, inner(frames)) for name, frames in take.threads))


def _begins(frame: Frame) -> bool:
    return frame.function.endswith("_bootstrap") and frame.file.endswith(
        "multiprocessing/process.py"
    )


def _is_python(proc: Procfs, pid: int) -> bool:
    path = f"{proc.root}/{pid}/exe"
    program = proc.patiently(pid, lambda: os.readlink(path))  # noqa: PTH115 - of /proc
    return program is not None and program.rpartition("/")[2].startswith("python")
