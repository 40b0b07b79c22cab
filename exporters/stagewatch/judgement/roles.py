"""Waits between the roles of a job: in the groups that they share, and as the kernel shows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.graph import Group, Where, groups_of
from stagewatch.ranks.wait_class import WaitClass

OUTSIDE = ("cleanup", "idle")
"""Stages outside of the loop."""
HANDS_OVER = "weights_update"
"""The stage in which one role hands weights to another."""
OF_A_ROLE = ("init", "world")
"""Names of groups that every role uses for a group of its own."""
Share = tuple[str, Sequence[RankFacts], Group]
"""A role, its live ranks, and its part of a group."""


@dataclass(slots=True)
class Beside:
    """What the other roles of its job mean for one role."""

    awaited: dict[int, Where] = field(default_factory=dict)
    """Ranks of the role for which all other members of a group wait, or for which ranks of other
    roles wait as the kernel shows."""
    by_kernel: set[int] = field(default_factory=set)
    """The awaited ranks that the kernel shows."""
    perhaps_awaited: set[int] = field(default_factory=set)
    """The ranks of `by_kernel` that others await only through a process."""
    complete: set[str] = field(default_factory=set)
    """Groups of several roles whose members are all inside one collective."""
    late_of_other_roles: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """By group of several roles: the late members of the other roles, by role and number."""
    shared: set[str] = field(default_factory=set)
    """Groups of several roles, all of whose members live, as far as their number is known."""
    roles: frozenset[str] = frozenset()
    """The other roles with live ranks."""
    own_world: bool = True
    """Whether the role numbers its ranks by itself: another role has a rank of the same number."""
    only_role: bool = False
    """Whether the job has no other role."""
    partner_hands_over: bool = False
    """Whether another role with an overdue rank is in the stage that hands weights over."""
    alone_in_stage: int | None = None
    """The rank of the role that is the only one of the job inside a stage and outside of
    collectives, while all ranks are overdue."""
    live_ranks: int = 0
    """Number of live ranks of the job."""
    storage_waiters: int = 0
    """Number of ranks that wait for storage, in roles with an overdue rank."""


def beside(roles: Mapping[str, Sequence[RankFacts]]) -> dict[str, Beside]:
    """What the other roles mean for each role, given the ranks by role."""
    found = {role: Beside() for role in roles}
    parts: defaultdict[str, list[Share]] = defaultdict(list)
    unsized: defaultdict[str, set[str]] = defaultdict(set)
    live_ranks = stored = 0
    alive: set[str] = set()
    updating: set[str] = set()
    for role, ranks in roles.items():
        live = _alive(ranks)
        live_ranks += len(live)
        alive |= {role} if live else set()
        if any(rank.overdue for rank in live):
            updating |= {role} if any(rank.stage == HANDS_OVER for rank in live) else set()
            stored += sum(rank.wait_class is WaitClass.IO for rank in live)
            for group in groups_of(live)[0] if len(roles) > 1 else ():
                if group.incomplete:
                    parts[group.name].append((role, live, group))
                if not group.sized and group.name not in OF_A_ROLE:
                    unsized[group.name].add(role)
    users = Counter(number for ranks in roles.values() for number in {one.rank for one in ranks})
    for role, one in found.items():
        one.live_ranks, one.storage_waiters, one.roles = (
            live_ranks,
            stored,
            frozenset(alive - {role}),
        )
        one.only_role = len(roles) == 1
        one.own_world = one.only_role or any(users[rank.rank] > 1 for rank in roles[role])
        one.partner_hands_over = bool(updating - {role})
    everybody = [(role, rank) for role, ranks in roles.items() for rank in _alive(ranks)]
    staying = [
        (role, rank) for role, rank in everybody if rank.stage not in OUTSIDE and not rank.inside
    ]
    if len(staying) == 1 and all(rank.overdue for _, rank in everybody):
        ((role, rank),) = staying
        found[role].alone_in_stage = rank.rank
    _note_kernel_waits(everybody, found)
    for name, shares in parts.items():
        _note_late_members(name, shares, found)
    for name, users_of in unsized.items():
        for role in users_of if len(users_of) > 1 else ():
            found[role].shared.add(name)
    return found


def _note_kernel_waits(
    everybody: Sequence[tuple[str, RankFacts]], found: Mapping[str, Beside]
) -> None:
    """Note the ranks for which ranks of other roles wait, as the kernel shows.

    Waits count only of ranks that are overdue, make no step or make no marks."""
    for role, rank in everybody:
        stands = rank.overdue or rank.stepless or rank.progress_age_seconds is None
        for wait in rank.kernel_waits if stands and not rank.inside else ():
            if wait.rank is not None and wait.role in found and wait.role != role:
                theirs = found[wait.role]
                theirs.awaited[wait.rank] = "", wait.how
                if not wait.through:
                    theirs.perhaps_awaited.discard(wait.rank)
                elif wait.rank not in theirs.by_kernel:
                    theirs.perhaps_awaited.add(wait.rank)
                theirs.by_kernel.add(wait.rank)


def _alive(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    return [rank for rank in ranks if rank.wait_class is not WaitClass.GONE]


def _note_late_members(name: str, shares: Sequence[Share], found: Mapping[str, Beside]) -> None:
    """Note for a group of several roles, all of whose members live, which of them are late.

    A single late member is awaited by all; of several, one may wait for another unseen.
    """
    groups = [group for _, _, group in shares]
    if not any(group.inside for group in groups):
        return
    if max(group.size for group in groups) != (count := sum(len(one.members) for one in groups)):
        return
    reached = max(group.reached or 0 for group in groups)
    come = sum(len(group.furthest) for group in groups if group.reached == reached)
    where = max(groups, key=lambda group: len(group.inside)).where
    behind = {
        (role, live[at].rank)
        for role, live, group in shares
        for at, sequence in group.sequence.items()
        if sequence < reached
    }
    for role, live, group in shares:
        mine = found[role]
        mine.late_of_other_roles[name] = {rank for rank in behind if rank[0] != role}
        mine.shared.add(name)
        mine.complete |= {name} if come == count else set()
        late = {live[at].rank for at, sequence in group.sequence.items() if sequence < reached}
        if come == count - 1:
            mine.awaited |= dict.fromkeys(late, where)
