"""The case of one role: which ranks are at fault and why, and what that means for other roles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from stagewatch.judgement.facts import ANYBODY, BLANK, KernelWait, RankFacts, RecordState
from stagewatch.judgement.graph import Edge, Kind
from stagewatch.judgement.limits import (
    ABSENT_SECONDS,
    LATER_SECONDS,
    RETRIES_SECONDS,
    STEPLESS_SECONDS,
    YOUNG_GAPS,
)
from stagewatch.judgement.roles import HANDS_OVER, OUTSIDE
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import POINT_TO_POINT

WEAK = (
    *("awaited_through", "left_loop_early", "odd_one_out", "stack_differs", "stage_differs"),
    *("stands_alone", "waits_unlike"),
)
"""Weak evidence: a wait for another role may look the same."""
_GUESSED = (*WEAK, "role_differs", "stage_behind", "alone", "not_launched")
"""Evidence that makes a charge only `likely`, unless others wait for the rank in a group."""
_ALWAYS_GUESSED = ("device_idle", "not_started")
"""Evidence that always makes a charge only `likely`."""
_ASLEEP = (WaitClass.PARKED, WaitClass.POLL, WaitClass.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Charge:
    """Why a rank is at fault."""

    rank: RankFacts
    evidence: str
    """`process_gone`, `node_lost`, `missing`, `not_started`, `left_loop_early`, `awaited`,
    `awaited_through`, `not_launched`, `not_begun`, `no_bytes` (these three as NCCL shows it),
    `mismatch`, `livelock`, `io_blocked`, `odd_one_out`, `stage_differs`, `stack_differs`,
    `stands_alone`, `waits_unlike`, `role_differs`, `circle`, `stage_behind`, `alone`, `device_idle`
    or `device_lost`."""
    group: str = ""
    op: str = ""
    """The operation in which the others wait for it, if known."""
    outlasts: bool = False
    """Whether the rank itself still waits in this operation after most others left the job."""
    in_turn: bool = False
    """Whether the rank waits, through other roles, for those that wait for it."""

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped the rank; no peer can do that."""
        return self.rank.wait_class is WaitClass.STOPPED

    @property
    def confidence(self) -> str:
        """`sure` if others are seen to wait for the rank, or if it cannot go on by itself; else
        `likely`.  A rank without a record is `likely`: it may have ended in good order."""
        guessed = self.evidence in _GUESSED and not (self.group or self.stopped)
        guessed |= self.evidence in _ALWAYS_GUESSED or self.in_turn
        guessed |= self.rank.record is RecordState.NONE
        return "likely" if guessed else "sure"


@dataclass(frozen=True)
class Case:
    """The ranks of a role, and who is at fault.  A *place* is an index into `live`."""

    live: Sequence[RankFacts]
    gone: Sequence[RankFacts]
    """Ranks that have died."""
    left: Sequence[RankFacts] = ()
    """Ranks that have left the job lately; no agent shows them any more."""
    charges: tuple[Charge, ...] = ()
    unnamed: str = ""
    """Why nobody is charged: `mismatch`, `missing`, `cycle`, `call` (each rank waits for a tool, an
    environment or a reward function), `outsider` (they wait for a process that is not a rank),
    `group_only` (no rank stands out), `asking` (the kernel may still show whom the suspects wait
    for) or `other_role` (the evidence of another role is stronger)."""
    waiting: frozenset[int] = frozenset()
    """Places of the ranks that wait for another rank or process."""
    holding: frozenset[int] = frozenset()
    """Places of the ranks that hold the others up, even if they mark progress."""
    misses: bool = False
    """Whether a rank is overdue and a rank waits for members of its group that do not live here."""
    unseen: bool = False
    """Whether a rank waits for members that live in no role of the job."""
    others: frozenset[str] = frozenset()
    """The other roles of the job that have live ranks."""
    own_world: bool = True
    """Whether the role numbers its ranks by itself, apart from the other roles."""
    partner_hands_over: bool = False
    """Whether one of the other roles is in the stage that hands weights over."""
    outside: tuple[KernelWait, ...] = ()
    """The waits for anything but ranks of the role, as the kernel shows them."""
    edges: tuple[Edge, ...] = ()
    """Who waits for whom, by place."""

    # ---- Who is missing -------------------------------------------------------------------------

    @property
    def gone_is_fault(self) -> bool:
        """Whether the job still needs the ranks that are gone."""
        return self._charged_with("process_gone")

    @property
    def lacks_somebody(self) -> bool:
        """Whether ranks are charged with being absent, or others still wait for ranks that left."""
        absent = self._charged_with("process_gone", "missing", "node_lost", "not_started")
        return absent or any(charge.outlasts for charge in self.charges)

    @property
    def lacks_starters(self) -> bool:
        """Whether ranks are charged with having never started."""
        return self._charged_with("not_started")

    def _charged_with(self, *evidence: str) -> bool:
        return any(charge.evidence in evidence for charge in self.charges)

    @property
    def sees_all(self) -> bool:
        """Whether every rank of the role has been seen.

        An unseen rank may wait, may have left, or may be a rank that left here and moved to another
        node."""
        numbers = {rank.rank for rank in (*self.live, *self.gone, *self.left)}
        world = max((rank.world_size or 0 for rank in self.live or self.left), default=0)
        group = max((rank.group_sizes.get("world", 0) for rank in self.live), default=0)
        return 0 < (world or group) <= len(numbers)

    @property
    def lacks_unknown(self) -> bool:
        """Whether its world has ranks that have never been seen."""
        return self._world_size > 0 and not self.sees_all

    @property
    def bare(self) -> bool:
        """Whether ranks live and none of them keeps a record."""
        return bool(self.live) and all(rank.record is RecordState.NONE for rank in self.live)

    @property
    def awaits_absent(self) -> bool:
        """Whether the live ranks may wait for those that left: not if most have left, as at the end
        of a job, and not while a GPU computes."""
        computes = any(rank.computes for rank in self.live)
        return len(self.absent_long) <= len(self.live) and not computes

    @property
    def absent_long(self) -> tuple[RankFacts, ...]:
        """The ranks that left so long ago that others may be said to wait for them."""
        return tuple(rank for rank in self.left if (rank.left_seconds or 0.0) > ABSENT_SECONDS)

    @property
    def lost_with_node(self) -> list[RankFacts]:
        """The ranks of `absent_long` whose node is lost."""
        return [rank for rank in self.absent_long if rank.node_lost]

    def absent_numbers(self, most: int) -> tuple[list[int], int]:
        """The lowest numbers (at most `most`) of ranks that do not live, and the count of all of
        them, as far as the size of the world is known."""
        return _lacking(self._world_size, {rank.rank for rank in self.live}, most)

    @property
    def never_seen(self) -> list[RankFacts]:
        """Ranks of the world that were never seen, while the others are still starting.

        Empty if more ranks are unseen than live (the agents may see only a part of the job), if
        another role may share the rank numbers, and if no record shows whether the ranks have
        begun.
        """
        began = self.staged or any(
            rank.step_age_seconds is not None or max(rank.collectives.values(), default=0) > 1
            for rank in self.live
        )
        if began or not self.own_world or self.bare or not any(rank.overdue for rank in self.live):
            return []
        seen = {rank.rank for rank in (*self.live, *self.gone, *self.left)}
        numbers, count = _lacking(self._world_size, seen, len(self.live))
        blank = replace(
            BLANK, job_id=self.live[0].job_id, role=self.live[0].role, wait_class=WaitClass.GONE
        )
        return [replace(blank, rank=number) for number in numbers] if count == len(numbers) else []

    @property
    def _world_size(self) -> int:
        return max((rank.world_size or 0 for rank in self.live), default=0)

    def waited_for(self, numbers: Iterable[int]) -> set[int]:
        """The numbers of these ranks, and of all ranks that they wait for, directly or through
        others."""
        numbers = set(numbers)
        todo = [at for at, rank in enumerate(self.live) if rank.rank in numbers]
        reached = set(todo)
        by_waiter: defaultdict[int, list[Edge]] = defaultdict(list)
        for edge in self.edges if todo else ():
            for at in edge.waiters:
                by_waiter[at].append(edge)
        followed: set[int] = set()
        while todo:
            for edge in by_waiter[todo.pop()]:
                if id(edge) not in followed:  # which many ranks share
                    followed.add(id(edge))
                    todo += edge.targets - reached
                    reached |= edge.targets
        return {self.live[at].rank for at in reached}

    # ---- Are its charges stronger than another role's? ------------------------------------------

    @property
    def sure(self) -> bool:
        """Whether a charge rests on more than where and how the rank waits."""
        return any(
            charge.stopped or not (charge.evidence in WEAK or self._awaits_role(charge))
            for charge in self.charges
        )

    @property
    def awaits_role(self) -> bool:
        """Whether all charged ranks may wait for another role through a queue."""
        return bool(self.charges) and all(map(self._awaits_role, self.charges))

    def _awaits_role(self, charge: Charge) -> bool:
        """Whether the charged rank may itself wait for another role: it is asleep in no stage, in
        the stage that hands weights over (while no other role is in it), or in a stage that has the
        name of another role."""
        rank = charge.rank
        may = charge.evidence in ("awaited", "left_loop_early") and rank.wait_class in _ASLEEP
        hands_over = rank.stage == HANDS_OVER and not self.partner_hands_over
        where = rank.stage in ("idle", *self.others) or hands_over
        return may and where and not rank.stands_alone

    @property
    def waits_alike(self) -> bool:
        """Whether the charged ranks may wait for another role, and wait like most ranks inside
        collectives."""
        return self.awaits_role and not self.waits_unlike

    @property
    def waits_unlike(self) -> bool:
        """Whether a charged rank waits in another way than most ranks inside collectives."""
        usual = usual_waits(self.live[at] for at in self.waiting) | {WaitClass.UNKNOWN}
        return any(charge.rank.wait_class not in usual for charge in self.charges)

    @property
    def stands_in_loop(self) -> bool:
        """Whether ranks are in stages of the loop, none of them waits or may wait for a member, and
        none is charged: other roles may wait for them."""
        return not (self.charges or self.waiting or self.unsized) and any(
            rank.stage not in OUTSIDE for rank in self.live
        )

    @property
    def charged_in_loop(self) -> bool:
        """Whether a charged rank lives, is in a stage of the loop, and waits for no other role."""
        return any(
            charge.rank.stage not in OUTSIDE
            and charge.rank.wait_class is not WaitClass.GONE
            and not self._awaits_role(charge)
            for charge in self.charges
        )

    @property
    def stands_as_a_whole(self) -> bool:
        """Whether all ranks are in one stage of the loop, at one place of their code and in no
        collective, and none is charged.

        The stage must not have the name of another role, and the ranks must not be in calls of
        tools."""
        stages = {rank.stage for rank in self.live}
        places = {rank.stack.group for rank in self.live}
        at_one = len(self.live) == 1 or (len(places) == 1 and "" not in places)
        alone = self.unnamed != "call" and not any(rank.inside for rank in self.live)
        return (
            self.stands_in_loop
            and alone
            and at_one
            and len(stages - self.others) == len(stages) == 1
        )

    @property
    def only_waits(self) -> bool:
        """Whether the whole role only waits for other roles.

        Its ranks wait for members that are not here, for ranks that may wait for another role, or
        at a queue that another role may fill; or they are between two stages of the loop."""
        others = self.unnamed in ("outsider", "other_role")
        asks = others and all(wait.through for wait in self.outside)
        shares = self.unnamed == "cycle" and any(edge.kind is Kind.KERNEL for edge in self.edges)
        held_up_by_none = not self.charges and (
            asks or shares or self.unnamed == "missing" or not self.waiting
        )
        if not (self.awaits_role or held_up_by_none):
            return False
        charged = {id(charge.rank) for charge in self.charges}  # these may wait for another role
        return all(
            at in self.waiting or id(rank) in charged or (rank.stage in OUTSIDE and self.staged)
            for at, rank in enumerate(self.live)
        )

    @property
    def firm_outside(self) -> tuple[KernelWait, ...]:
        """The waits for processes that are not ranks and do not go on, and for other nodes."""
        known = (wait for wait in self.outside if wait.process != ANYBODY)
        return tuple(wait for wait in known if wait.process or wait.address)

    # ---- Does it go on? -------------------------------------------------------------------------

    @cached_property
    def staged(self) -> bool:
        """Whether a live rank has been in a stage of the loop."""
        return any(rank.stages - {*OUTSIDE, "init"} for rank in self.live)

    @property
    def never_marked(self) -> bool:
        """Whether its live ranks have never made a mark."""
        return bool(self.live) and all(rank.gaps == 0 for rank in self.live)

    @property
    def may_idle(self) -> bool:
        """Whether the ranks may simply have nothing to do.

        None makes marks or is absent, and none waits for peers unless the role serves others.  If
        none keeps a record, none is charged or waits for a process that does not go on."""
        seen = [wait for rank in self.live for wait in rank.kernel_waits]
        serves = not seen or any(wait.process == ANYBODY for wait in seen)
        wrong = self.bare and bool(self.charges or self.firm_outside)
        wrong |= not serves and any(rank.awaits_ranks for rank in self.live)
        wrong |= self.lacks_somebody
        return not wrong and all(rank.shows_only_activity for rank in self.live)

    @property
    def young(self) -> bool:
        """Whether the role has made few marks yet."""
        gaps = [rank.gaps for rank in self.live if rank.gaps is not None]
        return bool(gaps) and sum(gaps) < YOUNG_GAPS * len(self.live)

    def steps_in_place(self, seconds: float) -> bool:
        """Whether all ranks have been at one step for about that long.

        A role may make its last step a moment after the role that waits for it."""
        ages = [rank.step_age_seconds or 0.0 for rank in self.live]
        return bool(ages) and min(ages) > max(seconds - LATER_SECONDS, STEPLESS_SECONDS)

    @property
    def marks_in_vain(self) -> set[int]:
        """Places of the ranks that wait, and make marks but no step, as in a loop that repeats a
        request, while a peer is overdue."""
        late = any(rank.overdue for rank in self.live)
        return {
            at for at, rank in enumerate(self.live) if late and at in self.waiting and rank.stepless
        }

    def retries(self, seconds: float) -> bool:
        """Whether all ranks make marks of progress, none waits, and none has made a step for a
        minute and for about `seconds`."""
        return (
            self.steps_in_place(seconds)
            and not self.waiting
            and all(
                rank.keeps_marking
                and (rank.step_age_seconds or 0.0) > RETRIES_SECONDS
                and not rank.at_work
                for rank in self.live
            )
        )

    @property
    def may_wait_unseen(self) -> bool:
        """Whether an overdue rank is in no collective of known size, so that it may wait for
        another role."""
        return any(rank.overdue and not rank.inside.keys() & self._sized for rank in self.live)

    @property
    def inside_sized(self) -> bool:
        """Whether a rank is in a collective of a group of known size."""
        return any(rank.inside.keys() & self._sized for rank in self.live)

    @property
    def unsized(self) -> bool:
        """Whether a rank is overdue and a rank is in a collective of a group of unknown size."""
        inside = {name for rank in self.live for name in rank.inside}
        return any(rank.overdue for rank in self.live) and bool(inside - self._sized)

    @cached_property
    def _sized(self) -> set[str]:
        """The groups of known size; sends and receives count too, since their peer is known."""
        known = {name for rank in self.live for name, size in rank.group_sizes.items() if size}
        return known | {POINT_TO_POINT}

    @cached_property
    def may_compute(self) -> bool:
        """Whether all ranks record collectives, are in none and keep a core busy: their GPUs may be
        at work."""
        return not self.charges and all(
            rank.wait_class is WaitClass.SPIN and rank.collectives and not rank.inside
            for rank in self.live
        )

    @property
    def workers(self) -> list[RankFacts]:
        """The ranks at work, for which the others may wait; only the charged ones if there are any.

        A rank whose GPU computes waits for nobody, whatever it has launched before.
        """
        charged = {id(charge.rank) for charge in self.charges}
        return [
            rank
            for at, rank in enumerate(self.live)
            if (rank.computes or ((rank.at_work or self.may_compute) and at not in self.waiting))
            and (id(rank) in charged or not charged)
        ]


def _lacking(size: int, here: set[int], most: int) -> tuple[list[int], int]:
    """The lowest numbers (at most `most`) of a world of this size that are not `here`, and their
    count.

    Users state the size of the world, so a full list could be of any length.
    """
    count = size - sum(number < size for number in here)
    return list(islice((one for one in range(size) if one not in here), most)), count


def usual_waits(waiting: Iterable[RankFacts], *, tries_again: bool = False) -> set[WaitClass]:
    """The wait class of more than half of these ranks, if ranks in it wait for their peers.

    Asleep counts only while a rank `tries_again`.
    """
    counts = Counter(rank.wait_class for rank in waiting)
    alike = (WaitClass.POLL, WaitClass.SPIN, *((WaitClass.PARKED,) if tries_again else ()))
    return {one for one in alike if 2 * counts[one] > counts.total()}
