"""Folds the ranks of a job into boxes: one box for ranks that wait alike, and links between
boxes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from stagewatch.core.words import duration
from stagewatch.judgement.case import Charge
from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.graph import Kind
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.wait_words import label, name, ranges
from stagewatch.judgement.waits import CALL, Key, Wait, key
from stagewatch.judgement.words import DOING, meaning, sleeps_in
from stagewatch.ranks.wait_class import WaitClass

MAX_BOXES = 16
"""With more boxes than this, the picture becomes coarser."""
MOST_BOXES = 48
"""The most boxes of any picture; it states the number of the others."""
_COARSEST = 2


class Look(str, Enum):
    """How a box is drawn."""

    ROOT = "root"
    """At fault."""
    WAITS = "waits"
    STILL = "still"
    """Without progress for longer than its stage may take, and not seen to wait."""
    MOVES = "moves"
    ABSENT = "absent"
    """It has died, has left or is unseen, and is not at fault."""


@dataclass(frozen=True, slots=True)
class Box:
    """Ranks that wait alike, or anything else that ranks wait for."""

    role: str
    look: Look
    title: str
    lines: tuple[str, ...]
    charge: str = ""
    """Why its ranks are at fault."""
    size: int = 0
    """Number of ranks."""


@dataclass(frozen=True, slots=True)
class Link:
    """Boxes that wait for other boxes, by their index."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    label: tuple[str, str]
    seen: bool
    """Whether the wait is shown, and not only assumed."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The boxes and links of a job."""

    boxes: Sequence[Box]
    links: Sequence[Link]
    left_out: int = 0
    """Number of boxes for which there was no room."""


def picture(verdicts: Sequence[Verdict], waits: Sequence[Wait]) -> Picture:
    """The boxes and links of a job, as coarse as their number requires."""
    for coarseness in range(_COARSEST + 1):
        folded = _Folding(verdicts, waits, coarseness)
        if len(folded.members) <= MAX_BOXES:
            break
    return folded.picture()


@dataclass
class _Folding:
    """The ranks of a job, and what else they wait for, folded by what they have in common."""

    verdicts: Sequence[Verdict]
    waits: Sequence[Wait]
    coarseness: int
    """Ranks share a box if they wait for the same ranks (0), in like groups (1), or at all (2)."""
    members: dict[Hashable, list[RankFacts]] = field(default_factory=dict, init=False)
    outsiders: dict[Hashable, list[Wait]] = field(default_factory=dict, init=False)
    """The waits for anything but ranks, by the box of the target."""

    def __post_init__(self) -> None:
        self._charges = {
            key(charge.rank): charge for verdict in self.verdicts for charge in verdict.charges
        }
        self._out: dict[Key, set[Hashable]] = {}
        self._in: dict[Key, set[Hashable]] = {}
        for place, wait in enumerate(self.waits):
            kind = self._kind(place, wait)
            for rank in wait.waiters:
                self._out.setdefault(key(rank), set()).add(kind)
            for rank in wait.targets:
                self._in.setdefault(key(rank), set()).add(kind)
        for rank in self._ranks():
            self.members.setdefault(self._box_of(rank), []).append(rank)
        for wait in self.waits:
            if wait.outsider:
                self.members.setdefault(self._box_of_outsider(wait), [])
                self.outsiders.setdefault(self._box_of_outsider(wait), []).append(wait)

    def _ranks(self) -> Iterable[RankFacts]:
        """The live ranks, and absent ranks that are awaited or at fault."""
        for verdict in self.verdicts:
            yield from verdict.case.live
            for rank in (*verdict.case.gone, *verdict.case.left):
                if key(rank) in self._in or key(rank) in self._charges:
                    yield rank

    def _kind(self, place: int, wait: Wait) -> Hashable:
        if self.coarseness == 0:
            return place
        if self.coarseness == 1:
            return wait.kind, wait.op, re.sub(r"\d+", "*", wait.group)
        return wait.kind

    def _box_of(self, rank: RankFacts) -> Hashable:
        charge = self._charges.get(key(rank))
        common = rank.role, charge.evidence if charge else "", rank.wait_class is WaitClass.GONE
        waits, awaited = self._out.get(key(rank)), self._in.get(key(rank))
        if self.coarseness == _COARSEST:
            return *common, bool(waits), bool(awaited)
        does = () if waits else (rank.wait_class, rank.stage, rank.overdue)
        return *common, frozenset(waits or ()), frozenset(awaited or ()), does

    def _box_of_outsider(self, wait: Wait) -> Hashable:
        if self.coarseness == 0:
            return wait.waiters[0].role, wait.outsider
        return wait.waiters[0].role, wait.kind

    def picture(self) -> Picture:
        """The picture; if there is no room for all boxes, those at fault and awaited ones stay."""
        kinds = sorted(self.members, key=self._weight)
        shown = set(kinds[:MOST_BOXES])
        places = {kind: place for place, kind in enumerate(one for one in kinds if one in shown)}
        boxes = [self._box(kind) for kind in places]
        return Picture(boxes, self._links(places), len(kinds) - len(boxes))

    def _weight(self, kind: Hashable) -> tuple[bool, bool, int]:
        ranks = self.members[kind]
        charged = any(key(rank) in self._charges for rank in ranks)
        awaited = any(key(rank) in self._in for rank in ranks)
        return not charged, not awaited, -len(ranks)

    def _links(self, places: dict[Hashable, int]) -> list[Link]:
        alike: dict[Hashable, list[Wait]] = {}
        for wait in self.waits:
            ends = self._ends(wait, places)
            if all(ends):
                alike.setdefault((*ends, wait.kind), []).append(wait)
        links = []
        for waits in alike.values():
            targets = {key(rank): rank for wait in waits for rank in wait.targets}
            first, second = label(replace(waits[0], targets=tuple(targets.values())))
            more = f" +{len(waits) - 1}" if waits[1:] else ""
            sources, goals = self._ends(waits[0], places)
            links.append(Link(sources, goals, (f"{first}{more}", second), waits[0].seen))
        return links

    def _ends(
        self, wait: Wait, places: dict[Hashable, int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The boxes that a wait goes from and to."""
        kinds = [*map(self._box_of, wait.targets)]
        kinds += [self._box_of_outsider(wait)] if wait.outsider else []
        return _places(places, map(self._box_of, wait.waiters)), _places(places, kinds)

    def _box(self, kind: Hashable) -> Box:
        ranks = self.members[kind]
        if not ranks:
            return _outside(self.outsiders[kind], charged=bool(self._charges))
        first = ranks[0]
        charges = [self._charges[key(rank)] for rank in ranks if key(rank) in self._charges]
        gone = first.wait_class is WaitClass.GONE
        if charges:
            look = Look.ROOT
        elif gone:
            look = Look.ABSENT
        elif any(not wait.waits_for_nobody and wait.seen for wait in self._waits_of(first)):
            look = Look.WAITS
        else:
            look = Look.STILL if first.overdue else Look.MOVES
        lines = [_fate(ranks)] if gone else [_does(ranks), _where(ranks), _since(ranks)]
        lines += _inside_with_all(self._waits_of(first))
        return Box(
            first.role, look, _title(ranks), tuple(filter(None, lines)), _why(charges), len(ranks)
        )

    def _waits_of(self, rank: RankFacts) -> list[Wait]:
        kinds = self._out.get(key(rank), set())
        return [wait for place, wait in enumerate(self.waits) if self._kind(place, wait) in kinds]


def _places(places: dict[Hashable, int], kinds: Iterable[Hashable]) -> tuple[int, ...]:
    return tuple(sorted({places[kind] for kind in kinds if kind in places}))


def _outside(waits: Sequence[Wait], *, charged: bool) -> Box:
    """The box of a target that is no known rank.

    It is at fault if the kernel shows that ranks wait for it, and no rank is charged.
    """
    names = list(dict.fromkeys(wait.outsider for wait in waits))
    role = waits[0].waiters[0].role
    more = (f"and {len(names) - 1} more",) if names[1:] else ()
    if waits[0].kind == CALL:
        return Box(role, Look.ABSENT, name(names[0]), ("a tool, environment or reward", *more))
    if waits[0].kind == Kind.KERNEL.value and not charged:
        return Box(role, Look.ROOT, names[0], more, "is not a rank of the job")
    title, bracket, numbers = names[0].partition(" (")
    return Box(role, Look.ABSENT, title, (f"({numbers}", *more) if bracket else more)


def _title(ranks: Sequence[RankFacts]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0].rank}"
    return f"{len(ranks)} ranks: {ranges(rank.rank for rank in ranks)}"


def _why(charges: Sequence[Charge]) -> str:
    if not charges:
        return ""
    first = charges[0]
    return f"{meaning(first, several=len(charges) > 1)} ({first.confidence})"


def _fate(ranks: Sequence[RankFacts]) -> str:
    first = ranks[0]
    if first.node_lost:
        return f"node {name(first.node)} does not answer"
    if first.left_seconds is None:
        return "died"
    return f"left {duration(first.left_seconds)} ago"


def _does(ranks: Sequence[RankFacts]) -> str:
    """What most of them do, as `parked in futex`."""
    kind, count = Counter(rank.wait_class for rank in ranks).most_common(1)[0]
    channels = {sleeps_in(rank.wait_channel) for rank in ranks if rank.wait_class is kind}
    channel = channels.pop() if len(channels) == 1 else ""
    most = "" if count == len(ranks) else "most: "
    asleep = kind in (WaitClass.PARKED, WaitClass.IO) and channel
    return f"{most}{DOING[kind][count > 1]}" + (f" in {name(channel)}" if asleep else "")


def _where(ranks: Sequence[RankFacts]) -> str:
    """The stage and the step of most, and the node."""
    stages = Counter(_stage(rank) for rank in ranks if rank.stage).most_common(1)
    steps = sorted({rank.step for rank in ranks if rank.step is not None})
    nodes = sorted({rank.node for rank in ranks if rank.node})
    parts = [stages[0][0]] if stages else []
    if steps:
        parts.append(f"step {steps[0]}" + (f" to {steps[-1]}" if steps[1:] else ""))
    if nodes:
        parts.append(name(nodes[0]) if len(nodes) == 1 else f"{len(nodes)} nodes")
    return ", ".join(parts)


def _stage(rank: RankFacts) -> str:
    return name("/".join(filter(None, (rank.stage, rank.substage))))


def _since(ranks: Sequence[RankFacts]) -> str:
    ages = [rank.progress_age_seconds for rank in ranks if rank.progress_age_seconds is not None]
    if not ages:
        return ""
    return f"{'silent' if any(r.overdue for r in ranks) else 'progress'} {_span(ages)}" + (
        "" if any(r.overdue for r in ranks) else " ago"
    )


def _span(seconds: Sequence[float]) -> str:
    low, high = duration(min(seconds)), duration(max(seconds))
    return low if low == high else f"{low} to {high}"


def _inside_with_all(waits: Sequence[Wait]) -> list[str]:
    """The operation that the ranks are in with all members, at most one line."""
    return [f"in {label(wait)[0]}: {label(wait)[1]}" for wait in waits if wait.waits_for_nobody][:1]
