"""The waits of a whole job, by the verdicts on its roles; for pictures and lists.

Every role has edges of its own.  Here, equal edges of several roles become one wait, ranks that do
not live become targets, and waits that only the judge assumes are marked as assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stagewatch.judgement.facts import KernelWait, RankFacts
from stagewatch.judgement.graph import Edge, Kind
from stagewatch.judgement.judge import Verdict
from stagewatch.judgement.limits import ABSENT_SECONDS
from stagewatch.judgement.roles import OF_A_ROLE
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import POINT_TO_POINT

CALL = "call"
"""The waiters are inside a call of a tool, an environment or a reward function."""
MAYBE = "maybe"
"""The waiters stand still without a visible wait; the judge assumes the targets."""
GONE = "gone"
"""The targets have died, or left."""

Key = tuple[str, int, int, str]


def key(rank: RankFacts) -> Key:
    """What identifies a rank in its job."""
    return rank.role, rank.rank, rank.pid, rank.node


@dataclass(frozen=True, slots=True)
class Wait:
    """Ranks that wait for others."""

    waiters: tuple[RankFacts, ...]
    targets: tuple[RankFacts, ...]
    kind: str
    """The value of a `Kind`, or `CALL`, `MAYBE` or `GONE`."""
    group: str = ""
    op: str = ""
    sequence: int | None = None
    outsider: str = ""
    """What they wait for that is no live rank, in words; else empty."""
    lacks: str = ""
    """See `Edge.lacks`."""
    over: str = ""
    """The network device that does not deliver it."""
    witness: str = ""
    """See `Edge.witness`."""

    @property
    def seen(self) -> bool:
        """Whether the wait is shown, and not only assumed."""
        return self.kind != MAYBE

    @property
    def waits_for_nobody(self) -> bool:
        """Whether no target of the wait is known."""
        return not (self.targets or self.outsider)


def waits_of(verdicts: Sequence[Verdict]) -> list[Wait]:
    """The waits of one job, by the verdicts on all of its roles at one moment."""
    seen = [
        wait
        for verdict in verdicts
        for edge in verdict.case.edges
        if (wait := _wait_of_edge(verdict, edge, verdicts)) is not None
    ]
    found = _merged([*seen, *_calls(verdicts, seen)])
    return found + _assumed(verdicts, found)


def _wait_of_edge(verdict: Verdict, edge: Edge, verdicts: Sequence[Verdict]) -> Wait | None:
    """An edge of a role as a wait, with targets of other roles and absent ones; `None` if all
    members of the group, in all roles, have come."""
    live = verdict.case.live
    wait = Wait(
        tuple(live[place] for place in sorted(edge.waiters)),
        tuple(live[place] for place in sorted(edge.targets)),
        edge.kind.value,
        edge.group,
        edge.op,
        edge.sequence,
        lacks=edge.lacks,
        over=edge.over,
        witness=edge.witness,
    )
    if edge.group == POINT_TO_POINT:
        return _message(wait, verdict)
    if edge.kind is Kind.KERNEL:
        return _wait_for_outsider(wait, edge.outside, verdicts) if edge.outside else wait
    if edge.kind is not Kind.UNSEEN:
        return wait
    others = [one for one in verdicts if one is not verdict and edge.group not in OF_A_ROLE]
    late = [
        rank
        for one in others
        for rank in one.case.live
        if edge.group in rank.collectives and _is_late(rank, edge)
    ]
    if late:
        return replace(wait, targets=tuple(late), kind=Kind.NOT_COME.value)
    if absent := _absent(verdict) or _charged_absent(verdicts):
        return replace(wait, targets=absent, kind=GONE)
    here = sum(edge.group in rank.collectives for one in verdicts for rank in one.case.live)
    size = max((rank.group_sizes.get(edge.group, 0) for rank in live), default=0)
    if others and 0 < size <= here:
        return None
    return replace(wait, outsider=_unseen_members(max(size - here, 0), verdict, edge.group))


def _wait_for_outsider(wait: Wait, seen: KernelWait, verdicts: Sequence[Verdict]) -> Wait:
    """The wait with its target outside of the role, as the kernel shows it."""
    other = tuple(
        one
        for verdict in verdicts
        for one in verdict.case.live
        if (one.role, one.rank) == (seen.role, seen.rank)
    )
    return replace(wait, targets=other, outsider="" if other else seen.outsider)


def _is_late(rank: RankFacts, edge: Edge) -> bool:
    """Whether a rank of another role has not entered the collective that the waiters are in."""
    behind = edge.sequence is not None and rank.collectives[edge.group] < edge.sequence
    return behind or edge.group not in rank.inside


def _absent(verdict: Verdict) -> tuple[RankFacts, ...]:
    """The ranks of the role that do not live any more: the charged ones, else all."""
    absent = (*verdict.case.gone, *verdict.case.left)
    charged = {key(rank) for rank in verdict.culprits}
    return tuple(rank for rank in absent if key(rank) in charged) or absent


def _charged_absent(verdicts: Iterable[Verdict]) -> tuple[RankFacts, ...]:
    """The charged ranks of any role that have died or left."""
    charged = (rank for verdict in verdicts for rank in verdict.culprits)
    return tuple(rank for rank in charged if rank.wait_class is WaitClass.GONE)


def _unseen_members(count: int, verdict: Verdict, group: str) -> str:
    numbers, absent = verdict.case.absent_numbers(8) if group in OF_A_ROLE else ([], 0)
    which = ", ".join(map(str, numbers)) + (", ..." if absent > 8 else "")
    if count == 0:
        return "unseen members"
    one = "an unseen member" if count == 1 else f"{count} unseen members"
    return one + (f" ({which})" if numbers and absent == count else "")


def _message(wait: Wait, verdict: Verdict) -> Wait:
    """The wait of a send or a receive, with its absent peer."""
    if wait.kind == Kind.TOGETHER.value:
        return replace(wait, op="message")  # of a send and its receive one op is as good
    if wait.targets:
        return wait
    (rank,) = wait.waiters
    peer = rank.inside[POINT_TO_POINT].peer
    if peer == rank.rank:
        return replace(wait, outsider="a rank of another role")
    absent = tuple(one for one in _absent(verdict) if one.rank == peer)
    if absent:
        return replace(wait, targets=absent, kind=GONE)
    return replace(wait, outsider=f"rank {peer}, which is not in sight")


def _calls(verdicts: Sequence[Verdict], seen: Iterable[Wait]) -> list[Wait]:
    """The waits of overdue ranks inside calls of tools, if no edge shows another wait of theirs."""
    explained = {key(rank) for wait in seen for rank in wait.waiters}
    return [
        Wait((rank,), (), CALL, op=rank.call[0], outsider=rank.call[0])
        for verdict in verdicts
        for rank in verdict.case.live
        if rank.call and rank.overdue and key(rank) not in explained
    ]


def _merged(waits: Iterable[Wait]) -> list[Wait]:
    """The waits, merged where they differ only in their waiters."""
    by_target: dict[tuple[object, ...], list[Wait]] = {}
    for wait in waits:
        apart = wait.waiters[0].role if wait.group in OF_A_ROLE else ""
        targets = frozenset(map(key, wait.targets))
        detail = wait.outsider, wait.over, wait.witness
        what = (wait.kind, wait.group, wait.op, wait.sequence, detail, targets, apart)
        by_target.setdefault(what, []).append(wait)
    return [
        replace(alike[0], waiters=tuple(rank for wait in alike for rank in wait.waiters))
        for alike in by_target.values()
    ]


def _assumed(verdicts: Sequence[Verdict], seen: Sequence[Wait]) -> list[Wait]:
    """Assumed waits of ranks that stand still without a visible wait."""
    waiting = {key(rank) for wait in seen if not wait.waits_for_nobody for rank in wait.waiters}
    awaited = {key(rank) for wait in seen for rank in wait.targets}
    charged = [rank for verdict in verdicts for rank in verdict.culprits]
    explained = waiting | {key(rank) for rank in charged}
    found = []
    for verdict in verdicts:
        still = tuple(
            rank for rank in verdict.case.live if rank.overdue and key(rank) not in explained
        )
        if verdict.charges:
            roots = tuple(rank for rank in verdict.culprits if key(rank) not in awaited)
            targets = roots or verdict.culprits
        else:
            targets = _of_other_roles(verdict, verdicts, charged, waiting)
        if still and targets:
            found.append(Wait(still, targets, MAYBE))
    return found


def _of_other_roles(
    verdict: Verdict, verdicts: Sequence[Verdict], charged: Sequence[RankFacts], waiting: set[Key]
) -> tuple[RankFacts, ...]:
    """The ranks that a role without a charge may wait for: charged ranks of other roles, ranks that
    just left, else ranks of other roles that stand still without a visible wait."""
    excuse = verdict.excuse
    if excuse and excuse.kind == "other_role" and excuse.rank:
        return (excuse.rank,)
    others = tuple(rank for rank in charged if rank.role != verdict.role)
    if excuse and excuse.kind == "idle":
        return others
    if verdict.evidence != "other_role":
        return ()
    left = tuple(
        rank
        for one in verdicts
        for rank in one.case.left
        if (rank.left_seconds or 0.0) <= ABSENT_SECONDS
    )
    apart = [one for one in verdicts if one.role != verdict.role]
    stand = [rank for one in apart if one.stalled for rank in one.case.live]
    live = stand or [rank for one in apart for rank in one.case.live]
    ends = [rank for rank in live if key(rank) not in waiting]
    return others or left or tuple(ends or live)
