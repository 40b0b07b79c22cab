"""The case of one role: which rank is at fault and why, and what that means for the job's other
roles."""

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
"""Evidence that a wait for another role may leave as well."""
_GUESSED = (*WEAK, "role_differs", "stage_behind", "alone", "not_launched")
"""Evidence of how and where a rank waits, where nobody is seen to wait for it in a group."""
_ALWAYS_GUESSED = ("device_idle", "not_started")
"""Evidence of what others seem to wait for."""
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
    """What the others wait for it in, where that is known."""
    outlasts: bool = False
    """Whether it waits in there itself, while most of the others have left the job already."""
    in_turn: bool = False
    """Whether it waits, through other roles, for those that wait for it."""

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it, which no peer can do."""
        return self.rank.wait_class is WaitClass.STOPPED

    @property
    def confidence(self) -> str:
        """`sure` if others are seen to wait for it, or it cannot go on by itself; else `likely`,
        as of a rank without a record, which may have ended in good order."""
        guessed = self.evidence in _GUESSED and not (self.group or self.stopped)
        guessed |= self.evidence in _ALWAYS_GUESSED or self.in_turn
        guessed |= self.rank.record is RecordState.NONE
        return "likely" if guessed else "sure"


@dataclass(frozen=True)
class Case:
    """The ranks of a role, and who is at fault.  A *place* is an index into `live`."""

    live: Sequence[RankFacts]
    gone: Sequence[RankFacts]
    """They have died."""
    left: Sequence[RankFacts] = ()
    """They have left lately, and no agent shows them."""
    charges: tuple[Charge, ...] = ()
    nobody: str = ""
    """What is known where nobody is at fault: `mismatch`, `missing`, `cycle`, `call` (each rank
    waits for a tool, an environment or a reward function), `outsider` (a process that is no rank)
    or `group_only`; or `other_role`, where they give way to another role."""
    waiting: frozenset[int] = frozenset()
    """Places of the ranks that wait for somebody."""
    holding: frozenset[int] = frozenset()
    """Places of the ranks that hold the others up, even if they mark progress."""
    late: frozenset[int] = frozenset()
    """Places of the ranks that have not come as far as others in a group of several roles."""
    misses: bool = False
    """Whether some ranks are overdue, and some wait for members of their group that nothing
    shows."""
    unseen: bool = False
    """Whether some wait for members that are no ranks of the job's other roles either."""
    others: frozenset[str] = frozenset()
    """The job's other roles that live."""
    own_world: bool = True
    """Whether no other role shares the numbers of its ranks."""
    met: bool = False
    """Whether one of these is in the stage that hands weights over."""
    missed: frozenset[int] = frozenset()
    """Numbers of its ranks that all other members of a group of several roles wait for."""
    outside: tuple[KernelWait, ...] = ()
    """The waits for something that is not a rank of the role, as the kernel shows them."""
    edges: tuple[Edge, ...] = ()
    """Who waits for whom, by place."""

    # ---- Who is missing -------------------------------------------------------------------------

    @property
    def gone_is_fault(self) -> bool:
        """Whether the job still needs the ranks that are gone."""
        return self._charged_with("process_gone")

    @property
    def lacks_somebody(self) -> bool:
        """Whether ranks of it have died, left or never come, and are at fault or have left others
        waiting."""
        absent = self._charged_with("process_gone", "missing", "node_lost", "not_started")
        return absent or any(charge.outlasts for charge in self.charges)

    @property
    def lacks_starters(self) -> bool:
        """Whether ranks of it have never come, and are at fault."""
        return self._charged_with("not_started")

    def _charged_with(self, *evidence: str) -> bool:
        return any(charge.evidence in evidence for charge in self.charges)

    @property
    def sees_all(self) -> bool:
        """Whether all ranks of the role are or were known. If some are unknown, they may wait, may
        have left, or may be what a rank that has left here became on another node."""
        numbers = {rank.rank for rank in (*self.live, *self.gone, *self.left)}
        world = max((rank.world_size or 0 for rank in self.live or self.left), default=0)
        group = max((rank.group_sizes.get("world", 0) for rank in self.live), default=0)
        return 0 < (world or group) <= len(numbers)

    @property
    def lacks_unknown(self) -> bool:
        """Whether its world has ranks that were never known."""
        return self._world_size > 0 and not self.sees_all

    @property
    def bare(self) -> bool:
        """Whether none that lives keeps a record."""
        return bool(self.live) and all(rank.record is RecordState.NONE for rank in self.live)

    @property
    def awaits_absent(self) -> bool:
        """Whether those that live may wait for those that have left: not where most have, as at the
        end of a job, nor while a GPU computes."""
        computes = any(rank.computes for rank in self.live)
        return len(self.absent_long) <= len(self.live) and not computes

    @property
    def absent_long(self) -> tuple[RankFacts, ...]:
        """Those that have left long enough ago for others to be said to wait for them."""
        return tuple(rank for rank in self.left if (rank.left_seconds or 0.0) > ABSENT_SECONDS)

    @property
    def lost_with_node(self) -> list[RankFacts]:
        """Those of them whose node is lost as well."""
        return [rank for rank in self.absent_long if rank.node_lost]

    def absent_numbers(self, most: int) -> tuple[list[int], int]:
        """The numbers of the first unknown ranks, and how many there are, as far as the size of the
        world is known."""
        return _lacking(self._world_size, {rank.rank for rank in self.live}, most)

    @property
    def never_seen(self) -> list[RankFacts]:
        """Ranks of the world that were never known, while the others are at their beginning.

        There are none if more ranks are unknown than live (the agents may see only a part of the
        job), if roles may share the numbers of a world, and if it is unknown whether ranks have
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
        """Numbers of these ranks, of those whom they wait for, and so on."""
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

    # ---- How much its charges are worth beside another role's -----------------------------------

    @property
    def sure(self) -> bool:
        """Whether a charge rests on more than where and how a rank waits."""
        return any(
            charge.stopped or not (charge.evidence in WEAK or self._awaits_role(charge))
            for charge in self.charges
        )

    @property
    def awaits_role(self) -> bool:
        """Whether all charged ranks may wait for another role through a queue."""
        return bool(self.charges) and all(map(self._awaits_role, self.charges))

    def _awaits_role(self, charge: Charge) -> bool:
        """Whether the others wait for a rank that is asleep in no stage, in the one that hands
        weights to another role while no other role is in that, or in one that has the name of
        another role."""
        rank = charge.rank
        if charge.evidence not in ("awaited", "left_loop_early") or rank.wait_class not in _ASLEEP:
            return False
        if rank.rank in self.missed or rank.stands_alone:  # it awaits nobody, or who waits for it
            return False
        between = rank.stage == "idle" and rank.progress_age_seconds is not None
        hands_over = rank.stage == HANDS_OVER and not self.met
        return between or hands_over or rank.stage in self.others

    @property
    def waits_alike(self) -> bool:
        """Whether these poll or spin, as most do that wait inside."""
        return self.awaits_role and not self.waits_unlike

    @property
    def waits_unlike(self) -> bool:
        """Whether a charged rank waits otherwise than most that wait inside."""
        usual = usual_waits(self.live[at] for at in self.waiting) | {WaitClass.UNKNOWN}
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

    @property
    def stands_whole(self) -> bool:
        """Whether all are in one stage of the loop, which has not the name of another role, in no
        collective, and at one place of their code, and none is at fault; nor may they wait for what
        they have called."""
        stages = {rank.stage for rank in self.live}
        places = {rank.stack.group for rank in self.live}
        at_one = len(self.live) == 1 or (len(places) == 1 and "" not in places)
        alone = self.nobody != "call" and not any(rank.inside for rank in self.live)
        return self.stands and alone and at_one and len(stages - self.others) == len(stages) == 1

    @property
    def only_waits(self) -> bool:
        """Whether all wait for members that are not here, for ranks that may wait for another role,
        or for each other at a queue that another may fill, or are between two stages of the loop
        themselves."""
        others = self.nobody in ("outsider", "other_role")
        asks = others and all(wait.through for wait in self.outside)
        shares = self.nobody == "cycle" and any(edge.kind is Kind.KERNEL for edge in self.edges)
        nobody = not self.charges and (
            asks or shares or self.nobody == "missing" or not self.waiting
        )
        if not (self.awaits_role or nobody):
            return False
        charged = {id(charge.rank) for charge in self.charges}  # which may wait for another role
        return all(
            at in self.waiting
            or id(rank) in charged
            or (rank.stage in OUTSIDE and not rank.inside and at not in self.late and self.staged)
            for at, rank in enumerate(self.live)
        )

    @property
    def firm_outside(self) -> tuple[KernelWait, ...]:
        """The processes that are no ranks and do not go on, or are on another node."""
        known = (wait for wait in self.outside if wait.process != ANYBODY)
        return tuple(wait for wait in known if wait.process or wait.address)

    # ---- How it goes on -------------------------------------------------------------------------

    @cached_property
    def staged(self) -> bool:
        """Whether some have been in a stage of the loop."""
        return any(rank.stages - {*OUTSIDE, "init"} for rank in self.live)

    @property
    def never_marked(self) -> bool:
        """Whether its live ranks have never made a mark."""
        return bool(self.live) and all(rank.gaps == 0 for rank in self.live)

    @property
    def may_idle(self) -> bool:
        """Whether all are without marks, no rank is missing, none awaits peers that do not serve
        others, and of those without a record none stands out or waits for a process that does not
        go on: they may have nothing to do."""
        seen = [wait for rank in self.live for wait in rank.kernel_waits]
        serves = not seen or any(wait.process == ANYBODY for wait in seen)
        wrong = self.bare and bool(self.charges or self.firm_outside)
        wrong |= not serves and any(rank.awaits_ranks for rank in self.live)
        wrong |= self.lacks_somebody
        return not wrong and all(rank.tells_nothing for rank in self.live)

    @property
    def young(self) -> bool:
        """Whether the role has made few marks yet."""
        gaps = [rank.gaps for rank in self.live if rank.gaps is not None]
        return bool(gaps) and sum(gaps) < YOUNG_GAPS * len(self.live)

    def steps_in_place(self, seconds: float) -> bool:
        """Whether all have been at one step for about that long: a role makes its last step a
        moment after the one that it holds up."""
        ages = [rank.step_age_seconds or 0.0 for rank in self.live]
        return bool(ages) and min(ages) > max(seconds - LATER_SECONDS, STEPLESS_SECONDS)

    def marks_in_vain(self, seconds: float) -> set[int]:
        """Places of the ranks that are seen to wait, and make marks but no step for about as long
        as their peers make neither, as in a loop that asks again and again; `seconds`: how long
        these have made none, 0 if all go on."""
        return {
            at
            for at, rank in enumerate(self.live)
            if seconds and at in self.waiting and rank.stepless
            if (rank.step_age_seconds or 0.0) > seconds - LATER_SECONDS
        }

    def retries(self, seconds: float) -> bool:
        """Whether all make marks of progress, and no step for a minute and about that long, and
        none is seen to wait for somebody."""
        return (
            self.steps_in_place(seconds)
            and not self.waiting
            and all(
                rank.keeps_marking
                and (rank.step_age_seconds or 0.0) > RETRIES_SECONDS
                and not (rank.overdue or rank.at_work)
                for rank in self.live
            )
        )

    @property
    def free(self) -> bool:
        """Whether some are overdue in no collective of known size, so that they may wait for
        another role."""
        return any(rank.overdue and not rank.inside.keys() & self._sized for rank in self.live)

    @property
    def inside_sized(self) -> bool:
        """Whether some are inside of a collective whose members are known in number."""
        return any(rank.inside.keys() & self._sized for rank in self.live)

    @property
    def unsized(self) -> bool:
        """Whether some are inside of a collective of a group whose size nobody knows."""
        inside = {name for rank in self.live for name in rank.inside}
        return any(rank.overdue for rank in self.live) and bool(inside - self._sized)

    @cached_property
    def _sized(self) -> set[str]:
        """The groups whose size somebody knows; sends and receives have a known peer."""
        known = {name for rank in self.live for name, size in rank.group_sizes.items() if size}
        return known | {POINT_TO_POINT}

    @cached_property
    def running(self) -> bool:
        """Whether all ranks record collectives, are in none and keep their cores busy: their GPUs
        may be at work."""
        return not self.charges and all(
            rank.wait_class is WaitClass.SPIN and rank.collectives and not rank.inside
            for rank in self.live
        )

    @property
    def workers(self) -> list[RankFacts]:
        """Those that are at work, and that others may wait for because of that.

        One whose GPU computes waits for nobody, whatever it has launched before.
        """
        charged = {id(charge.rank) for charge in self.charges}
        return [
            rank
            for at, rank in enumerate(self.live)
            if (rank.computes or ((rank.at_work or self.running) and at not in self.waiting))
            and (id(rank) in charged or not charged)
        ]


def _lacking(size: int, here: set[int], most: int) -> tuple[list[int], int]:
    """The first numbers of a world of this size that are not here, and how many there are.

    Whoever starts a job says how large it is, so that no list may be as long.
    """
    count = size - sum(number < size for number in here)
    return list(islice((one for one in range(size) if one not in here), most)), count


def usual_waits(waiting: Iterable[RankFacts], *, tries_again: bool = False) -> set[WaitClass]:
    """The class of most that wait inside, if whoever shares it waits for somebody as well."""
    counts = Counter(rank.wait_class for rank in waiting)
    alike = (WaitClass.POLL, WaitClass.SPIN, *((WaitClass.PARKED,) if tries_again else ()))
    return {one for one in alike if 2 * counts[one] > counts.total()}
