"""Edges that libraries below the program tell: PyTorch's flight recorder and NCCL's RAS.

They count what was enqueued, where the client counts what was called.  A rank may have entered a
collective that never came to NCCL; and of those that wait in one alike, kernels may have begun on
all but a few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from stagewatch.judgement.facts import LibraryCall, RankFacts
from stagewatch.judgement.graph import Edge, Graph, Kind, most_common

RAS = "nccl_ras"
"""It counts each operation of a communicator apart, and does not tell what is done."""
WITNESSES = {"flight_recorder": "PyTorch's flight recorder", RAS: "NCCL's RAS"}
SCHEDULED, STARTED, COMPLETED = "scheduled", "started", "completed"
"""PyTorch's words; a kernel has started where it measures how long collectives take."""


def add_library_waits(live: Sequence[RankFacts], graph: Graph) -> None:
    """Add who waits for whom in what libraries tell of.

    What they tell counts more than that all members are together by the client.
    """
    for (witness, group, _), members in sorted(_groups(live).items()):
        waits, targets, lack = _sides(members)
        if not (waits and targets):
            continue
        op = most_common(members[place].op for place in waits)
        number = max(members[place].sequence for place in waits)
        graph.together -= waits | targets
        graph.edges = [
            edge
            for edge in graph.edges
            if edge.kind is not Kind.TOGETHER or not edge.waiters & targets
        ]
        graph.waits |= waits
        for place in sorted(targets):
            graph.awaited.setdefault(place, (group, op))
        told = f"{lack} it, as {WITNESSES.get(witness, witness)} tells"
        who, whom = frozenset(waits), frozenset(targets)
        graph.edges.append(Edge(who, whom, Kind.BELOW, group, op, number, witness=told))


def _groups(live: Sequence[RankFacts]) -> Mapping[tuple[str, str, str], dict[int, LibraryCall]]:
    """What is told of each group, by place; of RAS by operation."""
    found: defaultdict[tuple[str, str, str], dict[int, LibraryCall]] = defaultdict(dict)
    for place, rank in enumerate(live):
        for call in rank.library_calls:
            of = call.witness, call.group, call.op if call.witness == RAS else ""
            before = found[of].get(place)
            if before is None or before.sequence < call.sequence:
                found[of][place] = call
    return found


def _sides(members: Mapping[int, LibraryCall]) -> tuple[set[int], set[int], str]:
    """Who waits in the furthest collective of a group, for whom, and what those lack."""
    furthest = max(call.sequence for call in members.values())
    behind = {place for place, call in members.items() if call.sequence < furthest}
    there = {at for at in members.keys() - behind if members[at].state != COMPLETED}
    if behind:
        return there, behind, "not enqueued"
    begun = {place for place in there if members[place].state == STARTED}
    few = {place for place in there if members[place].state == SCHEDULED}
    return (begun, few, "not begun") if 2 * len(few) < len(members) else (set(), set(), "")
