"""Lays out the ranks of a case as a table, with one line for ranks that are alike."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Sequence

from stagewatch.core.terminal import aligned
from stagewatch.core.words import duration
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.wait_words import inside, name, ranges
from stagewatch.judgement.waits import Key, key
from stagewatch.judgement.words import DOING, sleeps_in
from stagewatch.ranks.wait_class import WaitClass

FEW = 12
"""Up to so many ranks have a line each."""
MOST = 32
"""The most lines; for the rest, only the number of ranks is shown."""
_WIDEST = 80
"""The most characters of the calls that a rank is inside of."""
_TITLES = (
    *("ROLE", "RANK", "NODE", "STAGE", "STEP"),
    *("SILENT FOR", "BUDGET", "HOW IT WAITS", "INSIDE OF"),
)
_RIGHT = {"STEP", "SILENT FOR", "BUDGET"}


def rows(ranks: Sequence[RankFacts], charged: Collection[Key]) -> list[tuple[str, bool]]:
    """The lines of the table, titles first, each with whether a rank at fault is in it."""
    folded = _folded(sorted(ranks, key=lambda rank: (rank.role, rank.rank)), charged)
    shown = folded
    if len(folded) > MOST:
        order = sorted(folded, key=lambda one: (key(one[0]) not in charged, -len(one)))
        kept = {key(one[0]) for one in order[:MOST]}
        shown = [one for one in folded if key(one[0]) in kept]
    lines = aligned(_known_columns([_TITLES, *map(_cells, shown)]), _RIGHT)
    marks = [False, *(key(one[0]) in charged for one in shown)]
    told = list(zip(lines, marks, strict=True))
    if len(folded) > len(shown):
        rest = len(ranks) - sum(map(len, shown))
        told.append((f"... and {rest} more ranks, unlike these and each other", False))
    return told


def _folded(ranks: Sequence[RankFacts], charged: Collection[Key]) -> list[list[RankFacts]]:
    """The ranks in groups that are alike; the more ranks, the coarser the groups."""
    folded: list[list[RankFacts]] = []
    for alike in (_same if len(ranks) <= FEW else _alike, _about_alike):
        kinds: dict[Hashable, list[RankFacts]] = {}
        for rank in ranks:
            kinds.setdefault((key(rank) in charged, alike(rank)), []).append(rank)
        folded = list(kinds.values())
        if len(folded) <= MOST:
            break
    return folded


def _same(rank: RankFacts) -> Hashable:
    return key(rank)


def _alike(rank: RankFacts) -> Hashable:
    return _about_alike(rank), rank.step, rank.substage, inside(rank), sleeps_in(rank.wait_channel)


def _about_alike(rank: RankFacts) -> Hashable:
    kind = rank.wait_class, rank.overdue, bool(rank.inside), bool(rank.call)
    return rank.role, rank.stage, kind, rank.left_seconds is None, rank.node_lost


def _cells(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    first = ranks[0]
    numbers = ranges(rank.rank for rank in ranks)
    nodes = sorted({rank.node for rank in ranks if rank.node})
    steps = sorted({rank.step for rank in ranks if rank.step is not None})
    within = {inside(rank) or _calls(rank) for rank in ranks}
    return (
        name(first.role),
        f"{numbers} ({len(ranks)})" if len(ranks) > 1 else numbers,
        (name(nodes[0]) if len(nodes) == 1 else f"{len(nodes)} nodes") if nodes else "-",
        name("/".join(filter(None, (first.stage or "-", first.substage)))),
        (f"{steps[0]}" if len(steps) == 1 else f"{steps[0]}-{steps[-1]}") if steps else "-",
        _span([rank.progress_age_seconds for rank in ranks]) + ("!" if first.overdue else " "),
        _span([rank.budget_seconds for rank in ranks]),
        how(first),
        _in_common(within),
    )


def _in_common(texts: set[str]) -> str:
    """The common form of these texts; numbers that differ become `*`: `all_reduce * of tp:*`."""
    if len(texts) > 1:
        texts = {re.sub(r"\d+", "*", text) for text in texts}
    told = texts.pop() if len(texts) == 1 else "several"
    return (told if len(told) <= _WIDEST else f"{told[: _WIDEST - 3]}...") or "-"


def how(rank: RankFacts) -> str:
    """How a rank waits, or what has become of it: `is parked in futex`."""
    if rank.node_lost:
        return "its node does not answer"
    if rank.left_seconds is not None:
        return f"left {duration(rank.left_seconds)} ago"
    if rank.wait_class is WaitClass.GONE:
        return "has died"
    channel = sleeps_in(rank.wait_channel)
    asleep = rank.wait_class in (WaitClass.PARKED, WaitClass.IO) and channel
    return DOING[rank.wait_class][0] + (f" in {name(channel)}" if asleep else "")


def _calls(rank: RankFacts) -> str:
    return f"call of {name(rank.call[0])} for {duration(rank.call[1])}" if rank.call else ""


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = duration(min(known)), duration(max(known))
    return low if low == high else f"{low} - {high}"


def _known_columns(table: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The table without columns that are empty or unknown."""
    columns = zip(*table, strict=True)
    return list(zip(*[one for one in columns if set(one[1:]) != {"-"}], strict=True))
