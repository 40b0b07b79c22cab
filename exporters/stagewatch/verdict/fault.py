"""Finds who of a role would be at fault, if it is stalled: the strongest evidence counts.

Collectives come first, then how the ranks wait, then where they are.  The recording rules in
`alerts/stalls.rules.yaml` do the same under "Who is at fault".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import POINT_TO_POINT
from stagewatch.verdict.facts import RankFacts, is_still
from stagewatch.verdict.graph import Graph, Where, draw
from stagewatch.verdict.roles import OUTSIDE, Beside
from stagewatch.verdict.thresholds import (
    ABSENT_SECONDS,
    LATER_SECONDS,
    MIN_SECONDS,
    STEPLESS_SECONDS,
    WORKING_SECONDS,
    YOUNG_GAPS,
)

_ODD_CLASSES = (WaitClass.COMPUTE, WaitClass.PARKED, WaitClass.POLL, WaitClass.SPIN)
"""The most telling first."""
_BUSY = (WaitClass.COMPUTE, WaitClass.IO, WaitClass.STOPPED)
_WEAK = ("left_loop_early", "odd_one_out", "stack_differs", "stage_differs")
"""Evidence that a wait for another role may leave as well."""

Charges = dict[int, tuple[str, str, str]]
"""Evidence, group and operation, by a rank's place."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Why a rank is at fault."""

    rank: RankFacts
    evidence: str
    """`process_gone`, `missing`, `left_loop_early`, `awaited`, `mismatch`, `livelock`,
    `io_blocked`, `odd_one_out`, `stage_differs` or `stack_differs`."""
    group: str = ""
    op: str = ""
    """What the others wait for it in, where that is known."""
    outlasts: bool = False
    """Whether it waits in there itself, while most of the others have left the job already."""


@dataclass(frozen=True, slots=True)
class Case:
    """The ranks of a role, and who is at fault."""

    live: Sequence[RankFacts]
    gone: Sequence[RankFacts]
    charges: tuple[Charge, ...]
    nobody: str
    """What is known where nobody is at fault: `mismatch`, `missing`, `cycle`, `call` (each rank
    waits for a tool, an environment or a reward function) or `group_only`; or `other_role`, where
    they give way to another role."""
    waiting: tuple[RankFacts, ...]
    """They wait for somebody."""
    holding: tuple[RankFacts, ...] = ()
    """They hold the others up, though they may make marks of progress."""
    misses: bool = False
    """Whether some are overdue, and some wait for members of their group that nobody sees."""
    left: Sequence[RankFacts] = ()
    """They have left this node lately, and run nowhere on it."""
    others: frozenset[str] = frozenset()
    """The job's other roles that live."""

    @property
    def gone_is_fault(self) -> bool:
        """Whether the world still counts on those that are gone."""
        return any(charge.evidence == "process_gone" for charge in self.charges)

    @property
    def lacks_somebody(self) -> bool:
        """Whether ranks of it have died or left, and are at fault or have left others waiting."""
        return self.gone_is_fault or any(
            charge.evidence == "missing" or charge.outlasts for charge in self.charges
        )

    @property
    def sees_all(self) -> bool:
        """Whether all ranks of the role are or were on this node: of others it cannot tell whether
        they wait, have left, or are what a rank that has left here became elsewhere."""
        numbers = {rank.rank for rank in (*self.live, *self.gone, *self.left)}
        world = max((rank.world_size or 0 for rank in self.live or self.left), default=0)
        group = max((rank.group_sizes.get("world", 0) for rank in self.live), default=0)
        return 0 < (world or group) <= len(numbers)

    @property
    def absent_long(self) -> tuple[RankFacts, ...]:
        """Those that have left long enough ago for others to be said to wait for them."""
        return tuple(rank for rank in self.left if (rank.left_seconds or 0.0) >= ABSENT_SECONDS)

    @property
    def sure(self) -> bool:
        """Whether somebody is at fault for more than where and how it waits."""
        return any(
            charge.rank.wait_class is WaitClass.STOPPED
            or not (charge.evidence in _WEAK or self._awaits_role(charge))
            for charge in self.charges
        )

    @property
    def awaits_role(self) -> bool:
        """Whether nobody is at fault but ranks that may wait for another role through a queue."""
        return bool(self.charges) and all(map(self._awaits_role, self.charges))

    def _awaits_role(self, charge: Charge) -> bool:
        """Whether the others wait for a rank that is asleep in no stage, or in one that has the
        name of another role."""
        rank = charge.rank
        asleep = rank.wait_class in (WaitClass.PARKED, WaitClass.POLL, WaitClass.UNKNOWN)
        awaited = charge.evidence in ("awaited", "left_loop_early")
        between = rank.stage == "idle" and rank.progress_age_seconds is not None
        return awaited and asleep and (between or rank.stage in self.others)

    @property
    def waits_alike(self) -> bool:
        """Whether these poll or spin, as most do that wait inside."""
        return self.awaits_role and not self.waits_unlike

    @property
    def waits_unlike(self) -> bool:
        """Whether somebody is at fault who does not."""
        usual = _usual_waits(self.waiting) | {WaitClass.UNKNOWN}
        return any(charge.rank.wait_class not in usual for charge in self.charges)

    @property
    def stands(self) -> bool:
        """Whether some are inside of stages of the loop, none waits for a member that has not come,
        nor may, and none is at fault: ranks of other roles may wait for them."""
        return not (self.charges or self.waiting or self.unsized) and any(
            rank.stage not in OUTSIDE for rank in self.live
        )

    @property
    def stays(self) -> bool:
        """Whether somebody is at fault inside of a stage of the loop, and awaits no other role."""
        return any(
            charge.rank.stage not in OUTSIDE
            and charge.rank.wait_class is not WaitClass.GONE
            and not self._awaits_role(charge)
            for charge in self.charges
        )

    def steps_in_place(self, seconds: float) -> bool:
        """Whether all have been at one step for longer than that."""
        ages = [rank.step_age_seconds or 0.0 for rank in self.live]
        return bool(ages) and min(ages) > max(seconds, STEPLESS_SECONDS)

    @property
    def free(self) -> bool:
        """Whether some are overdue in no collective of known size, so that they may wait for
        another role."""
        return any(rank.overdue and not rank.inside.keys() & self._sized for rank in self.live)

    @property
    def unsized(self) -> bool:
        """Whether some are inside of a collective of a group whose size nobody knows."""
        inside = {name for rank in self.live for name in rank.inside}
        return any(rank.overdue for rank in self.live) and bool(inside - self._sized)

    @property
    def _sized(self) -> set[str]:
        """The groups whose size somebody knows; sends and receives have a known peer."""
        known = {name for rank in self.live for name, size in rank.group_sizes.items() if size}
        return known | {POINT_TO_POINT}

    @property
    def absent(self) -> str:
        """The numbers of ranks that are not here, as far as the size of the world is known."""
        here = {rank.rank for rank in self.live}
        size = max((rank.world_size or 0 for rank in self.live), default=0)
        numbers = [str(number) for number in range(size) if number not in here]
        shown = ", ".join(numbers[:8]) + (f" and {len(numbers) - 8} more" if numbers[8:] else "")
        return shown or "how many is not known"

    def holds_up(self, rank: RankFacts) -> bool:
        """Whether the others wait for this rank, though it may make marks of progress."""
        return any(rank is other for other in self.holding)

    @property
    def young(self) -> bool:
        """Whether the job has shown little yet."""
        gaps = [rank.gaps for rank in self.live if rank.gaps is not None]
        return bool(gaps) and sum(gaps) < YOUNG_GAPS * len(self.live)

    @property
    def running(self) -> bool:
        """Whether all ranks tell of their collectives, are in none and keep their cores busy, so
        that their GPUs may work."""
        return not self.charges and all(
            rank.wait_class is WaitClass.SPIN and rank.collectives and not rank.inside
            for rank in self.live
        )

    def may_work(self, rank: RankFacts) -> bool:
        """Whether the rank is at work, and others may wait for that work."""
        charged = any(charge.rank is rank for charge in self.charges)
        waits = any(rank is other for other in self.waiting)
        at_work = rank.at_work or self.running
        return at_work and not waits and (charged or not self.charges)


def accuse(ranks: Sequence[RankFacts], others: Beside) -> Case:
    """The case of one role, whether or not it is stalled."""
    live = [rank for rank in ranks if rank.wait_class is not WaitClass.GONE]
    here = {rank.rank for rank in live}
    absent = [rank for rank in ranks if rank.wait_class is WaitClass.GONE and rank.rank not in here]
    gone = [rank for rank in absent if rank.left_seconds is None]
    left = [rank for rank in absent if rank.left_seconds is not None]
    asked = {
        place: others.awaited[rank.rank]
        for place, rank in enumerate(live)
        if rank.rank in others.awaited
    }
    graph = draw(live, asked, others.whole)
    waiting = tuple(live[place] for place in sorted(graph.waits))
    found, holding = _by_collectives(live, graph)
    held_up_by = tuple(live[place] for place in sorted(holding))
    misses = graph.short and any(rank.overdue for rank in live)
    case = Case(live, gone, (), "", waiting, held_up_by, misses, left, others.roles)
    complete = _world_is_complete(live)
    if gone and live and not complete:
        return replace(case, charges=tuple(Charge(rank, "process_gone") for rank in gone))
    if not found and not complete and (charges := _by_absence(case, graph)):
        return replace(case, charges=charges)
    found = found or _by_wait(live, graph, others)
    named = tuple(
        Charge(live[place], _left_early(live, place, evidence, found), group, op)
        for place, (evidence, group, op) in sorted(found.items())
    )
    nobody = "" if named else _nobody(graph)
    if nobody == "group_only" and live and all(rank.call for rank in live):
        nobody = "group_only" if graph.waits or graph.together else "call"
    return replace(case, charges=named, nobody=nobody)


def _by_absence(case: Case, graph: Graph) -> tuple[Charge, ...]:
    """Who has left while the others wait for members of their group; or, where most have left, who
    still waits: those have one collective too many."""
    absent = case.absent_long
    if not (case.live and case.misses and case.sees_all):
        return ()
    lasting = sorted(graph.missing.items()) if len(absent) > len(case.live) else []
    return tuple(
        Charge(case.live[place], "mismatch", group, op, outlasts=True)
        for place, (group, op) in lasting
    ) or tuple(Charge(rank, "missing") for rank in absent)


def _world_is_complete(live: Sequence[RankFacts]) -> bool:
    """Whether as many ranks live as the world counts: it has shrunk, and misses nobody."""
    sizes = [rank.group_sizes["world"] for rank in live if "world" in rank.group_sizes]
    return any(rank.world_size == len(live) for rank in live) or 0 < max(sizes, default=0) <= len(
        live
    )


def _nobody(graph: Graph) -> str:
    if graph.differs:
        return "mismatch"
    if graph.short:
        return "missing"
    return "cycle" if graph.waits and not graph.together else "group_only"


def _by_collectives(live: Sequence[RankFacts], graph: Graph) -> tuple[Charges, set[int]]:
    """Who is charged by the graph, and all who hold others up."""
    found: Charges = {place: ("mismatch", *where) for place, where in graph.mismatched.items()}
    livelock = _livelock(live, graph) - graph.mismatched.keys()
    found |= dict.fromkeys(livelock, ("livelock", "", ""))
    late = [rank.late_seconds for rank in live if rank.late_seconds is not None]
    patient = min(late, default=0.0) < WORKING_SECONDS
    holding = {
        place: where
        for place, where in graph.awaited.items()
        if place not in graph.waits | graph.together | graph.mismatched.keys() | livelock
        and (
            live[place].overdue
            or (_marks(live[place]) and not patient)
            or (place in graph.nowhere and _tells_nothing(live[place]))
        )
    }
    # No peer can bring a rank to stop or to wait for storage: others that do so are at fault as
    # well.  Those beside such a rank may wait for it in a way that is not seen, and go unnamed.
    for wait_class, evidence in (
        (WaitClass.STOPPED, "odd_one_out"),
        (WaitClass.IO, "io_blocked"),
        (None, "awaited"),
    ):
        chosen = {
            place: where
            for place, where in holding.items()
            if wait_class in (None, live[place].wait_class)
        }
        if wait_class is None:
            chosen = _but_as_waiting(live, graph, chosen, tries_again=bool(livelock))
        if chosen:
            found |= {place: (evidence, *where) for place, where in chosen.items()}
            if wait_class is not None:
                found |= _charged(_unawaited(live, graph, wait_class), evidence)
            break
    if not found and _nobody(graph) == "cycle":
        found = _out_of_cycle(live, graph)
    return found, livelock | holding.keys()


def _out_of_cycle(live: Sequence[RankFacts], graph: Graph) -> Charges:
    """Who of those that wait for each other has left out a collective, is at the end already, or is
    one of a few in another stage than all others are in together."""
    if graph.skipped:
        return {place: ("mismatch", *where) for place, where in graph.skipped.items()}
    loop = {rank.stage for place, rank in enumerate(live) if place not in graph.awaited}
    at_end = {
        place: where
        for place, where in graph.awaited.items()
        if live[place].stage in OUTSIDE and live[place].stage not in loop
    }
    if at_end and 2 * len(at_end) < len(live):
        return {place: ("left_loop_early", *where) for place, where in at_end.items()}
    few = _minority([rank.stage for rank in live])
    return {p: ("stage_differs", *where) for p, where in graph.awaited.items() if p in few}


def _but_as_waiting(
    live: Sequence[RankFacts], graph: Graph, chosen: dict[int, Where], *, tries_again: bool
) -> dict[int, Where]:
    """Without those that spin or poll as most do that wait inside, unless all do: they wait for
    somebody, too, in a way that is not told.

    `tries_again`: a rank does so again and again; those that sleep as the others do, or that are
    all that is left, may wait for it.
    """
    usual = _usual_waits([live[place] for place in graph.waits], tries_again=tries_again)
    others = {place: w for place, w in chosen.items() if live[place].wait_class not in usual}
    return others if others or tries_again else chosen


def _usual_waits(waiting: Sequence[RankFacts], *, tries_again: bool = False) -> set[WaitClass]:
    """The class of most that wait inside, if whoever shares it waits for somebody as well."""
    counts = Counter(rank.wait_class for rank in waiting)
    alike = (WaitClass.POLL, WaitClass.SPIN, *((WaitClass.PARKED,) if tries_again else ()))
    return {one for one in alike if 2 * counts[one] > len(waiting)}


def _unawaited(live: Sequence[RankFacts], graph: Graph, wait_class: WaitClass) -> set[int]:
    """Overdue ranks of that class which nobody is seen to wait for, and which wait for nobody."""
    return {
        place
        for place, rank in enumerate(live)
        if rank.wait_class is wait_class
        and rank.overdue
        and not rank.inside
        and place not in graph.awaited
    }


def _tells_nothing(rank: RankFacts) -> bool:
    """Whether it has told nothing of itself yet, and is still."""
    return rank.progress_age_seconds is None and is_still(rank) and not rank.at_work


def _marks(rank: RankFacts) -> bool:
    return rank.progress_age_seconds is not None and rank.progress_age_seconds <= MIN_SECONDS


def _livelock(live: Sequence[RankFacts], graph: Graph) -> set[int]:
    """Ranks that mark progress without a step, while all others wait."""
    ages = [rank.progress_age_seconds or 0.0 for rank in live]
    last = min((age for age in ages if age > MIN_SECONDS), default=0.0)
    stepless = {
        place
        for place, rank in enumerate(live)
        if _marks(rank)
        and ages[place] < last - LATER_SECONDS
        and (rank.step_age_seconds or 0.0) >= STEPLESS_SECONDS
        and not rank.at_work
        and place not in graph.waits
    }
    busy = any(rank.wait_class in _BUSY for place, rank in enumerate(live) if place not in stepless)
    overdue = any(rank.overdue for rank in live)
    return stepless if overdue and not busy and 2 * len(stepless) <= len(live) else set()


def _by_wait(live: Sequence[RankFacts], graph: Graph, others: Beside) -> Charges:
    """How a rank that waits for nobody waits, or where it is."""
    counts = Counter(rank.wait_class for rank in live)
    free = [place for place in range(len(live)) if place not in graph.waits]
    stopped = [place for place in free if live[place].wait_class is WaitClass.STOPPED]
    if stopped:
        return _charged(stopped, "odd_one_out")
    stored = [place for place in free if live[place].wait_class is WaitClass.IO]
    if stored and 2 * others.stored <= others.live:
        return _charged(stored, "io_blocked")
    unseen = {
        place
        for place in free
        if not graph.waits and all(call.op == "unknown" for call in live[place].inside.values())
    }
    stages = [rank.stage for rank in live]
    one_stage = None not in stages and len(set(stages)) == 1
    elsewhere = _minority([rank.substage for rank in live] if one_stage else stages)
    if "idle" in stages:
        elsewhere |= {place for place, rank in enumerate(live) if rank.rank == others.alone}
    elsewhere &= unseen
    if elsewhere:
        return _charged(sorted(elsewhere), "stage_differs")
    if 2 * counts[WaitClass.UNKNOWN] < len(live) and (odd := _odd(live, unseen, counts)):
        return _charged(odd, "odd_one_out")
    return _charged(_alone(live) & unseen, "stack_differs")


def _odd(live: Sequence[RankFacts], unseen: set[int], counts: Counter[WaitClass]) -> list[int]:
    """Who waits unlike its peers and unlike itself while the job was well."""
    for wait_class in _ODD_CLASSES:
        odd = [
            place
            for place in sorted(unseen)
            if live[place].wait_class is wait_class
            and live[place].class_before - {WaitClass.UNKNOWN}
            and wait_class not in live[place].class_before
        ]
        if odd and 2 * counts[wait_class] < len(live):
            return odd
    return []


def _alone(live: Sequence[RankFacts]) -> set[int]:
    """The one rank, of three at least, that stays in another stack than all the others share."""
    counts = Counter(rank.stack.group for rank in live if rank.stack.group).most_common(1)
    if len(live) < 3 or not counts or counts[0][1] != len(live) - 1:
        return set()
    return {
        place
        for place, rank in enumerate(live)
        if rank.stack.group not in ("", counts[0][0]) and rank.stack.still
    }


def _charged(places: Iterable[int], evidence: str) -> Charges:
    return dict.fromkeys(places, (evidence, "", ""))


def _minority(words: Sequence[str | None]) -> set[int]:
    """The places of the rarer of two words, if more than half are the other; `None` is no word."""
    counts = Counter(word for word in words if word is not None).most_common()
    if len(counts) != 2 or 2 * counts[0][1] <= len(words):
        return set()
    return {place for place, word in enumerate(words) if word == counts[1][0]}


def _left_early(live: Sequence[RankFacts], place: int, evidence: str, found: Charges) -> str:
    """The evidence; of a rank asleep outside of the loop, where none of its peers is, that."""
    rank = live[place]
    innocent = {other.stage for at, other in enumerate(live) if at not in found}
    if (
        evidence in ("awaited", "stage_differs", "odd_one_out")
        and rank.wait_class is WaitClass.PARKED
        and rank.progress_age_seconds is not None
        and rank.stage in OUTSIDE
        and rank.stage not in innocent
    ):
        return "left_loop_early"
    return evidence
