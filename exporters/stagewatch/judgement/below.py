"""Waits below the program, from NCCL's profiler plugin, PyTorch's flight recorder or NCCL's RAS.

By their programs, all members of a group may be inside a collective. Below the program a member may
not have launched it, its GPU may not have begun it, or it may send no bytes. The earliest open
collective of a group counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stagewatch.judgement.facts import RankFacts
from stagewatch.judgement.graph import Edge, Graph, Kind
from stagewatch.ranks.nccl.layout import (
    CREDIT,
    FLIGHT_RECORDER,
    LAUNCHED,
    NETWORK,
    PLUGIN,
    RAS,
    RECEIVE,
    Communicator,
)

WITNESSES = {
    PLUGIN: "NCCL's profiler plugin",
    FLIGHT_RECORDER: "PyTorch's flight recorder",
    RAS: "NCCL's RAS",
}
"""The libraries in words, the most exact first."""
_EXACTNESS = tuple(WITNESSES)

Member = tuple[int, Communicator]
"""The place of a rank, and the operation of its communicator."""
Members = Mapping[int, Member]
"""The members of one group that one library shows, by number."""


def add_waits_below(live: Sequence[RankFacts], graph: Graph) -> None:
    """Add the waits that libraries show.

    These waits outweigh the programs' records that all members are inside. If several libraries
    show a wait, the most exact one makes the edge.
    """
    shown: dict[tuple[Kind, frozenset[int]], str] = {}
    for members in _groups(live):
        edges = [
            edge
            for edge in _look(members, graph)
            if shown.setdefault((edge.kind, edge.targets), edge.witness) == edge.witness
        ]
        if edges:
            _add(edges, live, graph)


def _groups(live: Sequence[RankFacts]) -> Iterator[Members]:
    """The groups with an open collective, without those in which two ranks claim the same
    number."""
    found: defaultdict[tuple[int, str, int], list[tuple[int, Member]]] = defaultdict(list)
    for place, rank in enumerate(live):
        for one in rank.nccl:
            if one.witness in WITNESSES:
                of = _EXACTNESS.index(one.witness), one.id, one.members
                found[of].append((one.member, (place, one)))
    for _, those in sorted(found.items()):
        members = dict(those)
        if len(members) == len(those) and any(map(_has_open_collective, members.values())):
            yield members


def _has_open_collective(member: Member) -> bool:
    return member[1].open and member[1].collective


def _add(edges: Sequence[Edge], live: Sequence[RankFacts], graph: Graph) -> None:
    """Add these edges of one group, and the waiters and targets, to the graph."""
    targets = frozenset().union(*(edge.targets for edge in edges))
    waiters = frozenset().union(*(edge.waiters for edge in edges))
    graph.waits |= waiters
    graph.together -= waiters | targets
    graph.edges = [
        one for one in graph.edges if one.kind is not Kind.TOGETHER or not one.waiters & targets
    ]
    graph.edges += edges
    for edge in edges:
        for place in edge.targets:
            if place not in graph.awaited:
                graph.awaited[place] = edge.group, _operation_in_words(edge, live)
                graph.below[place] = edge.kind.value


def _look(members: Members, graph: Graph) -> list[Edge]:
    """The edges of a group, of the first kind that applies: not launched, another operation, not
    begun, no bytes.

    Only a library that sees all members can show that one has done less than the others.
    """
    sequence = min(one.sequence for _, one in filter(_has_open_collective, members.values()))
    here = {
        number: member
        for number, member in members.items()
        if _has_open_collective(member) and member[1].sequence == sequence
    }
    whole = len(members) == next(iter(members.values()))[1].members
    late = {n: m for n, m in members.items() if n not in here and m[1].sequence < sequence}
    waiting = {n: m for n, m in here.items() if m[1].state == LAUNCHED}
    _contradict(here, graph)
    if late:
        return [_wait(here, late, Kind.NOT_LAUNCHED)] if whole else []
    if whole and _differing(here, graph):
        return []
    if waiting:
        begun = {n: m for n, m in here.items() if n not in waiting}
        return [_wait(begun, waiting, Kind.NOT_BEGUN)] if whole and begun else []
    return list(_transfers(here, whole=whole))


def _contradict(here: Members, graph: Graph) -> None:
    """Note the library as a contradiction on edges `NOT_COME` whose ranks it all shows inside."""
    one, inside = next(iter(here.values()))[1], _places(here)
    graph.edges = [
        replace(edge, witness=WITNESSES[one.witness])
        if edge.kind is Kind.NOT_COME
        and edge.group == one.name
        and edge.targets | edge.waiters <= inside
        else edge
        for edge in graph.edges
    ]


def _places(members: Members) -> frozenset[int]:
    return frozenset(place for place, _ in members.values())


def _wait(waiters: Members, targets: Members, kind: Kind, lacks: str = "", over: str = "") -> Edge:
    one = next(iter(waiters.values()))[1]
    what = kind, one.name or one.id[:8], one.op, one.sequence, None, lacks, over
    return Edge(_places(waiters), _places(targets), *what, WITNESSES[one.witness])


def _differing(here: Members, graph: Graph) -> bool:
    """Whether the members have launched different operations or sizes; a minority is noted."""
    does = {place: (one.op, one.size) for place, one in here.values()}
    (usual, count), *others = Counter(does.values()).most_common()
    if not others:
        return False
    one = next(one for _, one in here.values() if (one.op, one.size) == usual)
    if 2 * count > len(does):
        for place in sorted(place for place, what in does.items() if what != usual):
            graph.mismatched.setdefault(place, (one.name or one.id[:8], one.op))
    else:
        graph.differs = True
    return True


def _transfers(here: Members, *, whole: bool) -> Iterator[Edge]:
    """The edges to the members whose bytes do not arrive: the network does not deliver them, or
    the member waits for no peer and sends nothing."""
    awaited = {
        number: {one.peer for one in mine.transfers if one.waits != NETWORK and one.peer in here}
        for number, (_, mine) in here.items()
    }
    lost = [
        (receiver, sender)
        for receiver, (_, mine) in here.items()
        for sender in {one.peer for one in mine.transfers if one.waits == RECEIVE} & here.keys()
        if any(t.waits == NETWORK and t.peer == receiver for t in here[sender][1].transfers)
    ]
    senders, receivers = {sender for _, sender in lost}, {receiver for receiver, _ in lost}
    roots = senders
    if len(senders) > 1 and len(receivers) == 1:
        roots = receivers  # a single receiver gets nothing from anybody
    if not lost and whole:
        free = {peer for peers in awaited.values() for peer in peers if not awaited[peer]}
        roots = free if 2 * len(free) <= len(here) else set()
    covered = set(roots)
    by_peer = defaultdict(list)
    for number, peers in awaited.items():
        for peer in peers:
            by_peer[peer].append(number)
    for root in sorted(roots):
        others = {number: here[number] for number in by_peer[root] if number not in roots}
        of_root = [t for _, one in others.values() for t in one.transfers if t.peer == root]
        devices = {one.network for one in of_root}
        over = devices.pop() if len(devices) == 1 else ""
        waiters = others or {n: m for n, m in here.items() if n != root}
        lacks = "buffer" if of_root and all(t.waits == CREDIT for t in of_root) else "bytes"
        covered |= waiters.keys()
        yield _wait(waiters, {root: here[root]}, Kind.NO_BYTES, lacks, over)
    for number in here.keys() - covered if roots else ():
        whom = {n: here[n] for n in awaited[number] or roots}
        yield _wait({number: here[number]}, whom, Kind.NO_BYTES, "bytes")


def _operation_in_words(edge: Edge, live: Sequence[RankFacts]) -> str:
    """The operation of an edge in words, to be followed by its group: `all_reduce 7 (rank 3's proxy
    waits for its bytes over mlx5_2)`."""
    if edge.kind is not Kind.NO_BYTES:
        return f"{edge.op} {edge.sequence}"
    ranks = sorted(live[place].rank for place in edge.waiters)
    whose = f"rank {ranks[0]}'s proxy waits" if len(ranks) == 1 else f"{len(ranks)} proxies wait"
    over = f" over {edge.over}" if edge.over else ""
    what = "a buffer of it" if edge.lacks == "buffer" else "its bytes"
    return f"{edge.op} {edge.sequence} ({whose} for {what}{over})"
