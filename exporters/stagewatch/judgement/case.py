"""The case of one role: who of it is at fault and why, and what that means for the job's others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.limits import (
    ABSENT_SECONDS,
    LATER_SECONDS,
    MIN_SECONDS,
    RETRIES_SECONDS,
    STEPLESS_SECONDS,
    YOUNG_GAPS,
)
from stagewatch.judgement.roles import HANDS_OVER, OUTSIDE
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import POINT_TO_POINT

_WEAK = ("left_loop_early", "odd_one_out", "stack_differs", "stage_differs")
"""Evidence that a wait for another role may leave as well."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Why a rank is at fault."""

    rank: RankFacts
    evidence: str
    """`process_gone`, `missing`, `left_loop_early`, `awaited`, `mismatch`, `livelock`,
    `io_blocked`, `odd_one_out`, `stage_differs`, `stack_differs` or `role_differs`."""
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
    unseen: bool = False
    """Whether some wait for members that are no ranks of the job's other roles either."""
    late: Sequence[RankFacts] = ()
    """They have not come as far as others in a group of several roles."""
    left: Sequence[RankFacts] = ()
    """They have left this node lately, and run nowhere on it."""
    others: frozenset[str] = frozenset()
    """The job's other roles that live."""
    met: bool = False
    """Whether one of these is where weights are handed over."""

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
        """Whether the others wait for a rank that is asleep in no stage, in the one that hands
        weights to another role while no other role is in that, or in one that has the name of
        another role."""
        rank = charge.rank
        asleep = rank.wait_class in (WaitClass.PARKED, WaitClass.POLL, WaitClass.UNKNOWN)
        awaited = charge.evidence in ("awaited", "left_loop_early")
        between = rank.stage == "idle" and rank.progress_age_seconds is not None
        hands_over = rank.stage == HANDS_OVER and not self.met
        return awaited and asleep and (between or hands_over or rank.stage in self.others)

    @property
    def waits_alike(self) -> bool:
        """Whether these poll or spin, as most do that wait inside."""
        return self.awaits_role and not self.waits_unlike

    @property
    def waits_unlike(self) -> bool:
        """Whether somebody is at fault who does not."""
        usual = usual_waits(self.waiting) | {WaitClass.UNKNOWN}
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
        return (
            self.stands
            and self.nobody != "call"
            and len(stages) == 1
            and not stages & self.others
            and not any(rank.inside for rank in self.live)
            and (len(self.live) == 1 or len(places - {""}) == len(places) == 1)
        )

    @property
    def only_waits(self) -> bool:
        """Whether all wait for members that are not here, or for ranks that may wait for another
        role, or are between two stages of the loop themselves."""
        nobody = not self.charges and (self.nobody == "missing" or not self.waiting)
        return (self.awaits_role or nobody) and all(map(self._waits, self.live))

    def _waits(self, rank: RankFacts) -> bool:
        if any(rank is other for other in self.waiting):
            return True
        late = any(rank is other for other in self.late)
        return rank.stage in OUTSIDE and not rank.inside and not late and self.staged

    @property
    def staged(self) -> bool:
        """Whether some have been in a stage of the loop."""
        return any(rank.stages - {*OUTSIDE, "init"} for rank in self.live)

    @property
    def untold(self) -> bool:
        """Whether they live and have made no marks at all."""
        return bool(self.live) and all(rank.gaps == 0 for rank in self.live)

    def steps_in_place(self, seconds: float) -> bool:
        """Whether all have been at one step for about that long: a role makes its last step a
        moment after the one that it holds up."""
        ages = [rank.step_age_seconds or 0.0 for rank in self.live]
        return bool(ages) and min(ages) > max(seconds - LATER_SECONDS, STEPLESS_SECONDS)

    def retries(self, seconds: float) -> bool:
        """Whether all make marks of progress, and no step for a minute and about that long."""
        return self.steps_in_place(seconds) and all(
            rank.progress_age_seconds is not None
            and rank.progress_age_seconds <= MIN_SECONDS
            and (rank.step_age_seconds or 0.0) > RETRIES_SECONDS
            and not (rank.overdue or rank.at_work)
            for rank in self.live
        )

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


def usual_waits(waiting: Sequence[RankFacts], *, tries_again: bool = False) -> set[WaitClass]:
    """The class of most that wait inside, if whoever shares it waits for somebody as well."""
    counts = Counter(rank.wait_class for rank in waiting)
    alike = (WaitClass.POLL, WaitClass.SPIN, *((WaitClass.PARKED,) if tries_again else ()))
    return {one for one in alike if 2 * counts[one] > len(waiting)}
