"""Circles of waits through several roles of a job: a rank is late for a collective because it waits
for another role, and that role waits for the ranks inside the collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.graph import Edge, Kind, Where
from stagewatch.judgement.roles import OUTSIDE, Beside

Rank = tuple[str, int]
"""Role and number."""
_Node = Rank | str | tuple[str, int, str]
"""A rank, a process by name, or an edge by its role and number."""
MAX_SERVERS = 64
"""With more asked processes than this, none is blamed."""
_SOMEBODY_ELSE = ("", -1)
"""Stands for everybody who is not a live rank of the job."""


def late_in_circle(
    cases: Mapping[str, Case], beside: Mapping[str, Beside]
) -> dict[str, tuple[Charge, ...]]:
    """The charges by role against the few members of a group that wait outside of its collective,
    if all waits lead back to them.

    No wait may lead to a process, or to a rank that waits for nobody.  A queue counts as a wait for
    other ranks only between two stages; inside a stage, it counts as a process.
    """
    members = {(role, rank.rank): rank for role, case in cases.items() for rank in case.live}
    late: dict[Rank, Where] = {}
    for role, case in cases.items():
        for edge in case.edges:
            missing = _targets(role, edge, case, beside)
            size = max(case.live[at].group_sizes.get(edge.group, 0) for at in edge.waiters)
            if edge.group and 2 * len(missing) < (size or len(case.live)):
                late |= dict.fromkeys(missing, (edge.group, edge.op))
    away = _outside_collectives(cases)
    chosen = {rank: where for rank, where in late.items() if rank in away}
    if len({group for group, _ in chosen.values()}) > 1:
        return {}
    waits = _waits(cases, beside, frozenset(members)) if chosen else {}
    if not _lead_back(waits, chosen.keys()):
        return {}
    found: defaultdict[str, tuple[Charge, ...]] = defaultdict(tuple)
    for rank, where in sorted(chosen.items()):
        found[rank[0]] += (Charge(members[rank], "awaited", *where, in_turn=True),)
    return found


def server_of_all(cases: Mapping[str, Case], beside: Mapping[str, Beside]) -> str:
    """The only process to which all waits of these roles may lead; empty if there is none.

    A rank must have asked it inside a stage, or while a peer is in a collective.  The process may
    be a queue that one of its clients has to fill, so it does not count while one of its clients is
    not seen to wait.
    """
    waiters, asked, waiting = _asked(cases, beside)
    if len(asked) > MAX_SERVERS:
        return ""
    free = {name for rank, names in waiters.items() if rank not in waiting for name in names}
    found = [
        name
        for name, works in asked.items()
        if works and name not in free and waiting <= _all_waiting_for([name], waiters)
    ]
    return found[0] if len(found) == 1 else ""


def waits_without_servers(cases: Mapping[str, Case], beside: Mapping[str, Beside]) -> bool:
    """Whether a rank waits, directly or through others, for none of the asked processes."""
    waiters, asked, waiting = _asked(cases, beside)
    return not waiting <= _all_waiting_for(asked, waiters)


def _asked(
    cases: Mapping[str, Case], beside: Mapping[str, Beside]
) -> tuple[Mapping[_Node, set[_Node]], dict[str, bool], set[Rank]]:
    """Who waits for whom; the asked processes, each with whether a rank asked it inside a stage or
    while a peer was in a collective; and the ranks that wait."""
    waiters: defaultdict[_Node, set[_Node]] = defaultdict(set)
    asked: dict[str, bool] = {}
    waiting: set[Rank] = set()
    for role, case in cases.items():
        for number, edge in enumerate(case.edges):
            ranks = {(role, case.live[at].rank) for at in edge.waiters}
            waiting |= ranks
            if edge.kind is not Kind.KERNEL or (edge.outside and not edge.outside.through):
                waiters[role, number, "edge"] |= ranks
                for target in _targets(role, edge, case, beside):
                    waiters[target].add((role, number, "edge"))
        began = any(rank.awaits_ranks for rank in case.live)
        for rank in case.live:
            works = began if rank.stage is None else rank.stage not in OUTSIDE
            for wait in () if rank.inside else rank.kernel_waits:
                if wait.through:
                    asked[wait.through] = works or asked.get(wait.through, False)
                    waiters[wait.through].add((role, rank.rank))
                if wait.rank is not None:
                    waiters[wait.role, wait.rank].add(wait.through or (role, rank.rank))
    return waiters, asked, waiting


def _all_waiting_for(
    names: Iterable[str], waiters: Mapping[_Node, Collection[_Node]]
) -> set[_Node]:
    """All whose waits lead to one of the processes, directly or through others."""
    seen: set[_Node] = set(names)
    todo = list(seen)
    while todo:
        more = set(waiters.get(todo.pop(), ())) - seen
        seen |= more
        todo += more
    return seen


def _targets(role: str, edge: Edge, case: Case, beside: Mapping[str, Beside]) -> set[Rank]:
    """The ranks that the waiters of an edge wait for, also in other roles that share its group."""
    targets = {(role, case.live[place].rank) for place in edge.targets}
    if edge.kind is Kind.UNSEEN and role in beside:
        targets |= beside[role].late_of_other_roles.get(edge.group, set())
    if edge.outside is not None and edge.outside.rank is not None:
        targets.add((edge.outside.role, edge.outside.rank))
    return targets


def _outside_collectives(cases: Mapping[str, Case]) -> set[Rank]:
    """The ranks that wait outside of all collectives; a wait for a process counts only between two
    stages, as it may be a queue then."""
    found = set()
    for role, case in cases.items():
        for edge in case.edges:
            for rank in (case.live[at] for at in edge.waiters if edge.kind is Kind.KERNEL):
                asks = edge.outside is not None and edge.outside.rank is None
                if not asks or rank.stage in OUTSIDE:
                    found.add((role, rank.rank))
    return found


def _waits(
    cases: Mapping[str, Case], beside: Mapping[str, Beside], living: frozenset[Rank]
) -> Mapping[Rank, list[frozenset[Rank]]]:
    """The ranks that each rank waits for, one set for each wait.

    A wait for a queue is for the ranks that may fill it; if none is known, for any rank."""
    waits: defaultdict[Rank, list[frozenset[Rank]]] = defaultdict(list)
    asks: dict[Rank, frozenset[Rank]] = {}
    out = frozenset((_SOMEBODY_ELSE,))
    for role, case in cases.items():
        for edge in case.edges:
            targets = frozenset(_targets(role, edge, case, beside))
            outsider = edge.outside if edge.outside and edge.outside.rank is None else None
            unseen = edge.kind is Kind.UNSEEN and edge.group not in beside[role].late_of_other_roles
            if unseen or (outsider and not outsider.through) or targets - living:
                targets = out
            for rank in (case.live[place] for place in edge.waiters):
                me = role, rank.rank
                waits[me] += [targets] if targets else []
                if outsider and outsider.through:
                    asks[me] = living if rank.stage in OUTSIDE else out
    for me, anybody in asks.items():
        waits[me] = waits[me] or [anybody]
    return waits


def _lead_back(waits: Mapping[Rank, list[frozenset[Rank]]], first: Collection[Rank]) -> bool:
    """Whether all waits that start at these ranks lead back to them in circles."""
    seen, todo = set(first), list(first)
    followed: set[int] = set()
    awaited: set[Rank] = set()
    while todo:
        rank = todo.pop()
        if rank == _SOMEBODY_ELSE or not waits.get(rank):
            return False
        for targets in waits[rank]:
            if id(targets) not in followed:  # which many ranks share
                followed.add(id(targets))
                awaited |= targets - {rank}
                todo += targets - seen
                seen |= targets
    return awaited >= set(first)
