"""Reads the operations of a job from a file of `stagewatch trace`: work, waits, collectives."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.whatif.replay import Operation, Work

_WORK = {"dataloader": Work.DATA, "checkpoint": Work.CHECKPOINT, "save": Work.CHECKPOINT}
"""Kinds of work by a part of the stage's name; all else is computing."""
_PEERS = ("send", "recv", "receive")
_RANKS = ("train/", "actor/", "learner/")
"""The preferred roles; without these, the role with the most ranks."""

Slice = dict[str, Any]


def read_recorded(file: Path, pipeline: int = 1) -> list[Operation]:
    """The operations in whole steps that all ranks of the training role have recorded.

    `pipeline`: the number of pipeline stages; the first ranks are in the first stage. Raises
    `ConfigError` if the file is not a trace, `StagewatchError` if no step is complete.
    """
    try:
        raw = file.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        ranks = _ranks(json.loads(text)["traceEvents"])
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: not a file of stagewatch trace") from error
    if any(_meets_peer(one) for slices in ranks.values() for one in slices) and pipeline < 2:
        raise ConfigError("ranks send to each other: --pipeline must say in how many stages")
    each = max(1, len(ranks) // pipeline)
    of_rank = {rank: _of_rank(rank, n // each, ranks[rank]) for n, rank in enumerate(sorted(ranks))}
    steps = [{one.step for one in made} for made in of_rank.values()]
    whole = sorted(set.intersection(*steps) if steps else ())[1:-1]
    if not whole:
        raise StagewatchError(f"{file}: no whole step that all ranks of a role have recorded")
    operations: list[Operation] = []
    for made in of_rank.values():
        last: dict[int, int] = {}
        for one in made:
            if one.step in set(whole):
                one.after = [last[one.step]] if one.step in last else []
                last[one.step] = len(operations)
                operations.append(one)
    return operations


def _ranks(events: list[Slice]) -> dict[int, list[Slice]]:
    """The slices and step marks of each rank of the training role, with the name of its track."""
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    tracks = {
        (one["pid"], one["tid"]): one["args"]["name"]
        for one in events
        if one["name"] == "thread_name"
    }
    found: dict[str, dict[int, list[Slice]]] = defaultdict(dict)
    by_process: dict[int, list[Slice]] = defaultdict(list)
    for process, name in names.items():
        role, slash, rest = name.partition("/")
        number = rest.partition(" ")[0]
        if slash and number.isdecimal():
            found[role][int(number)] = by_process[process]
    for one in events:
        if one["ph"] in "Xi" and one["pid"] in by_process:
            by_process[one["pid"]].append(
                {**one, "track": tracks.get((one["pid"], one["tid"]), "")}
            )
    first = [role for role in found if f"{role}/" in _RANKS]
    role = max(first or found, key=lambda role: len(found[role]), default="")
    return found[role]


def _meets_peer(one: Slice) -> bool:
    return "peer" in one["args"] and one["name"].startswith(_PEERS)


def _of_rank(rank: int, stage: int, slices: list[Slice]) -> list[Operation]:
    """A rank's time, cut at the starts and ends of stages and collectives; a piece has the
    innermost of both."""
    training = [one for one in slices if one["track"].startswith("training thread")]
    collectives = [one for one in slices if one["track"].startswith("collectives")]
    closed = [one for one in training + collectives if one["ph"] == "X" and one["dur"] > 0]
    steps = sorted(
        (one["ts"], int(one["name"].split()[1]))
        for one in training
        if one["ph"] == "i" and one["name"].startswith("step ") and one["name"][5:].isdecimal()
    )
    cuts = sorted({time for one in closed for time in (one["ts"], one["ts"] + one["dur"])})
    closed.sort(key=lambda one: (one["ts"], -one["dur"]))
    made: list[Operation] = []
    open_now: list[Slice] = []
    number: dict[tuple[int, str], int] = defaultdict(int)
    following = mark = 0
    step: int | None = None
    for start, end in pairwise(cuts):
        open_now = [one for one in open_now if one["ts"] + one["dur"] > start]
        while following < len(closed) and closed[following]["ts"] <= start:
            open_now.append(closed[following])
            following += 1
        while mark < len(steps) and steps[mark][0] <= start:
            step = steps[mark][1]
            mark += 1
        if not open_now:
            continue
        inside = [one for one in open_now if one["track"].startswith("collectives")]
        one = inside[-1] if inside else open_now[-1]
        told = [each["args"]["step"] for each in open_now if "step" in each["args"]]
        of_step = told[-1] if told else step
        if of_step is None:
            continue
        name = one["name"]
        work = Work.NETWORK if inside else _work(name)
        known = one.get("group") if inside else None
        if known is not None and made[-1].group == known:  # another slice began within it
            made[-1].end = end / 1e6
            continue
        made.append(Operation(rank, stage, of_step, name, work, start / 1e6, end / 1e6))
        if inside:
            one["group"] = made[-1].group = _group(one, rank, of_step, number)
    return made


def _work(name: str) -> Work:
    return next((work for part, work in _WORK.items() if part in name), Work.COMPUTE)


def _group(one: Slice, rank: int, step: int, number: dict[tuple[int, str], int]) -> object:
    """The key that the ranks which meet here share."""
    track, name = one["track"], one["name"]
    if not _meets_peer(one):
        return track, name, one["args"].get("sequence")
    peer = one["args"]["peer"]
    ends = (rank, peer) if name.startswith("send") else (peer, rank)
    key = f"{track} {name} {ends}"
    number[step, key] += 1
    return track, ends, number[step, key]
