"""Circles of waits that lead through several roles of a job: a rank is late for a collective, as it
waits for another role, which waits for those inside of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from stagewatch.judgement.case import Case, Charge
from stagewatch.judgement.graph import Kind

Rank = tuple[str, int]
"""Role and number."""
_OUT = ("", -1)
"""Somebody who is no rank of the job that lives."""


def late_in_circle(cases: Mapping[str, Case]) -> dict[str, tuple[Charge, ...]]:
    """By role, those that have not come to a collective of their peers but wait for another role,
    from which all waits lead back: to nobody that waits for nobody, and to no process."""
    waits = _waits(cases)
    found = {}
    for role, case in cases.items():
        away = {place for edge in case.edges if edge.outside for place in edge.waiters}
        late = {
            place: (edge.group, edge.op)
            for edge in case.edges
            if edge.kind is Kind.NOT_COME
            for place in edge.targets
            if place in away
        }
        if not late or 2 * len(late) > len(case.live):
            continue
        if all(_leads_back(waits, (role, case.live[place].rank)) for place in late):
            found[role] = tuple(
                Charge(case.live[place], "awaited", *where, in_turn=True)
                for place, where in sorted(late.items())
            )
    return found


def _waits(cases: Mapping[str, Case]) -> Mapping[Rank, set[Rank]]:
    """Whom each rank waits for.  A queue that is asked stands for the ranks that may fill it."""
    waits: defaultdict[Rank, set[Rank]] = defaultdict(set)
    living = {(role, rank.rank) for role, case in cases.items() for rank in case.live}
    for role, case in cases.items():
        for edge in case.edges:
            targets = {(role, case.live[place].rank) for place in edge.targets}
            if (beyond := edge.outside) is not None and beyond.rank is not None:
                targets.add((beyond.role, beyond.rank))
            elif beyond is not None and not beyond.through:
                targets.add(_OUT)
            if edge.kind is Kind.ELSEWHERE:
                targets.add(_OUT)
            for place in edge.waiters:
                waits[role, case.live[place].rank] |= {
                    target if target in living else _OUT for target in targets
                }
    return waits


def _leads_back(waits: Mapping[Rank, set[Rank]], first: Rank) -> bool:
    """Whether all waits that lead on from a rank end in a circle with it."""
    seen, todo = {first}, [first]
    back = False
    while todo:
        rank = todo.pop()
        if rank == _OUT or not waits.get(rank):
            return False
        back |= first in waits[rank]
        todo += waits[rank] - seen
        seen |= waits[rank]
    return back
