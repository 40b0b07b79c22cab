"""Other ways to detect a hang, judged on the same jobs.

*time-out* is NCCL's watchdog: a collective that takes longer than its limit; it names nobody.
*heartbeat* names each rank that has begun nothing new for so long.  Both see what the player has
seen of the job.  Where they only have to wait on, their time is that of the last sign of life plus
the limit, also beyond the end of the run.  *py-spy* groups the stacks of the ranks' main threads
30 s after the trigger and names those outside the largest group; it has to be told when to look.
"""

from __future__ import annotations

from collections import Counter

from tests.hangbench.player import Look, Played
from tests.hangbench.score import INNOCENT, SILENT, SUSPECTED, answers, grade

LIMITS = (10.0, 30.0, 600.0)
PERIOD = 5.0
"""Seconds between two looks of the heartbeat's monitor."""


def others(played: Played) -> dict[str, dict[str, object]]:
    """What each of them answers: a grade or level, seconds after the trigger, processes named."""
    found = {}
    for limit in LIMITS:
        found[f"time-out {limit:.0f} s"] = _timeout(played, limit)
        found[f"heartbeat {limit:.0f} s"] = _heartbeat(played, limit)
    if played.probe and played.probe.stacks:
        found["py-spy grouping"] = _grouping(played)
    return found


def _timeout(played: Played, limit: float) -> dict[str, object]:
    alarms = [
        inside + limit
        for look in _after_trigger(played)
        for _, inside, _ in look.ranks
        if inside and (look.time - inside >= limit or _stays(played))
    ]
    return _answer(played, min(alarms, default=0.0), frozenset())


def _heartbeat(played: Played, limit: float) -> dict[str, object]:
    looks = _after_trigger(played)
    if _stays(played):
        last = {rank: mark for rank, (mark, _, _) in enumerate(looks[-1].ranks) if mark}
        alarm = min(last.values(), default=played.began) + limit
        named = frozenset(rank for rank, mark in last.items() if mark + limit <= alarm + PERIOD)
        return _answer(played, alarm, named)
    for look in looks:
        silent = [
            rank
            for rank, (mark, _, _) in enumerate(look.ranks)
            if mark and look.time - mark >= limit
        ]
        if silent and not _ended(played):
            return _answer(played, look.time, frozenset(silent))
    return _answer(played, 0.0, frozenset())


def _grouping(played: Played) -> dict[str, object]:
    assert played.probe is not None
    stacks = played.probe.stacks
    common, size = Counter(stacks.values()).most_common(1)[0]
    named = (
        frozenset(rank for rank in range(played.shape.world) if stacks.get(rank) != common)
        if 2 * size > played.shape.world
        else frozenset()
    )
    return _answer(played, played.probe.began if named else 0.0, named)


def _after_trigger(played: Played) -> list[Look]:
    return [look for look in played.looks if look.time >= played.triggered]


def _stays(played: Played) -> bool:
    """Whether the job was still hanging when its watch ended."""
    return not played.shape.healthy and played.shape.kind != "straggler"


def _ended(played: Played) -> bool:
    return len(played.finished) >= len(played.looks[-1].ranks)


def _answer(played: Played, alarm: float, named: frozenset[int]) -> dict[str, object]:
    if played.shape.healthy:
        answer = (INNOCENT if named else SUSPECTED) if alarm else SILENT
    else:
        answer = grade(bool(alarm), [named], answers(played))
    after = round(alarm - played.triggered, 1) if alarm else None
    return {"answer": answer, "after": after, "named": sorted(named)}
