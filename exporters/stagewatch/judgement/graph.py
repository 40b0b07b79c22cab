"""The wait-for graph of a role: who waits inside a collective, and for whom.

A rank inside a collective waits for the members of its group that have not entered it.  A rank that
others wait for, and that waits for nobody, is at fault.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median
from types import MappingProxyType

from stagewatch.gpu.device_state import Device
from stagewatch.judgement.facts import Inside, KernelWait, RankFacts
from stagewatch.judgement.limits import LATER_SECONDS, YOUNGER_SECONDS
from stagewatch.ranks.stacks import Stack
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.ranks.waits.blocking_calls import Whom
from stagewatch.record import OPS, POINT_TO_POINT

_NO_LONGER_INSIDE = (WaitClass.COMPUTE, WaitClass.IO, WaitClass.STOPPED)
"""Wait classes of ranks that wait for no peer, even if no end of a collective is recorded."""

_ROOTED = frozenset(op for op in OPS if op.split("_")[0] in ("broadcast", "gather", "scatter"))
_ROOTED |= {"reduce"}
"""Operations with a root: a rank may leave one before all members have entered it."""

Where = tuple[str, str]
"""A group, and the operation that most ranks inside it are in."""
NOBODY: Mapping[int, Where] = MappingProxyType({})
SPINS = "a kernel that spins on the GPU"
_LEVELS = 4
"""The most collectives of one group that get edges; the latest ones first."""


class Kind(str, Enum):
    """Why ranks wait for others: the waiters and targets of an edge."""

    NOT_COME = "not_come"
    """The targets have not entered the collective that the waiters are inside of."""
    LEFT = "left"
    """The targets have left that collective and entered another."""
    UNLIKE = "unlike"
    """The targets are in another operation or collective of the group, or at another step."""
    DIFFER = "differ"
    """Both sides differ, and neither is more than half of the group: they wait for each other."""
    PEER = "peer"
    """The targets should receive what the waiters send, or send what the waiters receive."""
    UNSEEN = "unseen"
    """No targets: the waiters wait for members that do not live here."""
    AMBIGUOUS = "ambiguous"
    """No targets: more ranks use the name of the group than it has members."""
    KERNEL = "kernel"
    """The kernel shows that the waiters wait for the targets to act on a pipe, a socket or a lock.
    Without targets they wait for a process that is not a rank, or for another node."""
    NOT_LAUNCHED = "not_launched"
    """Below the program, the targets have not launched the operation of the waiters."""
    NOT_BEGUN = "not_begun"
    """The GPUs of the targets have not begun the operation."""
    NO_BYTES = "no_bytes"
    """The targets send nothing, or the network does not deliver it."""
    TOGETHER = "together"
    """No targets: all members are inside, so none of them waits for a rank."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Ranks that wait for other ranks, each by its place in the sequence that was drawn."""

    waiters: frozenset[int]
    targets: frozenset[int]
    kind: Kind
    group: str
    op: str
    """The operation that the waiters are inside of."""
    sequence: int | None = None
    """The sequence number of that collective in its group, if known."""
    outside: KernelWait | None = None
    """The wait for anything but a rank of the waiters' role."""
    lacks: str = ""
    """What the targets do not deliver, in NCCL: `bytes`, or a `buffer` for the waiters' bytes."""
    over: str = ""
    """The network device that does not deliver it, if it is known."""
    witness: str = ""
    """The library that shows the wait, in words; for `NOT_COME`, a library that contradicts it."""


@dataclass(slots=True)
class Graph:
    """Who waits and who is awaited.  Ranks are places in the sequence that was drawn."""

    waits: set[int] = field(default_factory=set)
    """Ranks that are inside a call which another rank has not reached, or may not have."""
    awaited: dict[int, Where] = field(default_factory=dict)
    """Ranks that have not entered the operation that others are inside of."""
    together: set[int] = field(default_factory=set)
    """Ranks inside one collective with all members of its group."""
    mismatched: dict[int, Where] = field(default_factory=dict)
    """Ranks that do something else than most members of their group."""
    differs: bool = False
    """Whether members of a group are inside different operations, without a majority."""
    nowhere: set[int] = field(default_factory=set)
    """Ranks that have been in no collective while others wait in the very first one."""
    skipped: dict[int, Where] = field(default_factory=dict)
    """Ranks that have left out the collective that others are inside of, by their total count of
    collectives or by their step."""
    in_another: dict[int, Where] = field(default_factory=dict)
    """Ranks in a collective of another group, while most of their group are in its collective."""
    short: bool = False
    """Whether ranks wait for members that do not live here."""
    unseen: bool = False
    """Whether these members live in no other role of the job either."""
    missing: dict[int, Where] = field(default_factory=dict)
    """Ranks in a collective of a group with a member that does not live here; by operation."""
    outside: dict[int, KernelWait] = field(default_factory=dict)
    """Ranks that wait for another role, for a process that is not a rank, or for an address, as the
    kernel shows."""
    perhaps_awaited: set[int] = field(default_factory=set)
    """Ranks that may be awaited, but not all of them: others wait for a process that may need one,
    or are in a collective that no program records."""
    below: dict[int, str] = field(default_factory=dict)
    """Ranks whose being awaited only libraries, GPUs or stacks show, with that evidence."""
    edges: list[Edge] = field(default_factory=list)
    """Who waits for whom, to show people and to follow waits."""


def draw(
    live: Sequence[RankFacts],
    awaited: Mapping[int, Where] = NOBODY,
    whole: Container[str] = (),
    shared: Container[str] = (),
    *,
    all_here: bool = False,
) -> Graph:
    """The graph of the live ranks of one role.

    `awaited`: places of ranks for which other roles wait.  `shared`: groups with members in several
    roles; `whole`: the shared groups whose members have all entered the collective.  `all_here`:
    the job has no other ranks.
    """
    groups, nowhere = groups_of(live, whole, all_here=all_here)
    graph = Graph(nowhere=nowhere)
    for group in groups:
        group.enter(graph)
        graph.unseen |= group.short and bool(group.inside) and group.name not in shared
    totals: Counter[int] = Counter()
    for group in groups:
        totals.update(group.sequence)
    _skips(groups, totals, graph)
    _overtakes(groups, totals, graph)
    for group in groups:
        for place in sorted(group.stepped_past):
            graph.skipped.setdefault(place, group.where)
    graph.in_another = _in_another(groups)
    _sends(live, graph)
    _kernel_waits(live, graph)
    _unrecorded_collectives(live, graph)
    for group in groups:
        for place in sorted(group.one_too_many(graph.waits)):
            graph.mismatched.setdefault(place, group.where)
    for place, where in awaited.items():
        graph.awaited.setdefault(place, where)
    return graph


def groups_of(
    live: Sequence[RankFacts], whole: Container[str] = (), *, all_here: bool = False
) -> tuple[list[Group], set[int]]:
    """The groups of a role, and the places of ranks that have been in no group while others wait in
    the very first collective.

    `whole`: groups of several roles whose members have all entered the collective.  `all_here`:
    the job has no other ranks.
    """
    lateness = _lateness(live)
    members: defaultdict[str, set[int]] = defaultdict(set)
    for place, rank in enumerate(live):
        for name in rank.collectives.keys() - {POINT_TO_POINT}:
            members[name].add(place)
    # A rank that has been in other groups only is a member of `world` that has not entered it yet.
    # So is a rank that has been in no group, but only while others make groups or are in the
    # world's first collective: later it may simply not record its collectives.
    anywhere = set().union(*members.values())
    if max((rank.group_sizes.get("world", 0) for rank in live), default=0) >= len(anywhere):
        members["world"] |= anywhere
    late: set[int] = set()
    for name in ("init", "world"):
        first = max((rank.collectives.get(name, 0) for rank in live), default=0) == 1
        size = max((rank.group_sizes.get(name, 0) for rank in live), default=0)
        if first and size >= len(live):
            late = set(range(len(live))) - anywhere
            members[name] |= late
    if all_here:
        members["world"] |= lateness.keys() - anywhere
        _add_by_elimination(live, members)
    groups = [
        Group(name, live, members[name], lateness, whole=name in whole) for name in sorted(members)
    ]
    return groups, late


def _add_by_elimination(live: Sequence[RankFacts], members: Mapping[str, set[int]]) -> None:
    """Add the ranks outside of all groups that lack members to these groups, if the numbers match.

    They are added in the order of their numbers, since their real groups are unknown."""
    sizes = {
        name: max((live[place].group_sizes.get(name, 0) for place in here), default=0)
        for name, here in members.items()
    }
    short = [name for name in sorted(members) if sizes[name] > len(members[name])]
    seen: set[int] = set().union(*(members[name] for name in short))
    others = sorted(set(range(len(live))) - seen, key=lambda place: live[place].rank)
    if sum(sizes[name] - len(members[name]) for name in short) == len(others):
        for name in short:
            lacking = sizes[name] - len(members[name])
            members[name].update(others[:lacking])
            del others[:lacking]


def _in_another(groups: Sequence[Group]) -> dict[int, Where]:
    """The ranks that have left out a collective of their group and wait in a wider group instead.

    Most of their group are inside its collective, and few ranks are inside that of the wider
    group."""
    return {
        place: group.where
        for group in groups
        if group.is_crowded
        for wider in groups
        if group.members <= wider.members and not wider.is_crowded
        for place in sorted(group.behind & wider.inside.keys() - group.inside.keys())
    }


def _skips(groups: Sequence[Group], totals: Counter[int], graph: Graph) -> None:
    """Note ranks whose total count of collectives shows that they have skipped one.

    Most ranks at the furthest collective of a group have the same total.  A rank among them whose
    total lacks exactly the collectives that its peers of another group wait in has skipped
    these."""
    usual: dict[int, float] = {}
    for group in groups:
        furthest = group.furthest
        counts = Counter(totals[place] for place in furthest)
        middle = median(counts.elements()) if counts else 0
        if 2 * counts[int(middle)] > counts.total() and middle == int(middle):
            usual |= {place: max(middle, usual.get(place, 0)) for place in furthest}
    for group in groups:
        for place, gap in group.behind_by.items():
            if place in usual and totals[place] + gap == usual[place]:
                graph.skipped.setdefault(place, group.where)


def _overtakes(groups: Sequence[Group], totals: Counter[int], graph: Graph) -> None:
    """Note ranks that have not entered a collective although their total count is too high for
    that.

    Most of the group wait in it with equal totals.  A rank outside with a higher total is not late:
    it has skipped the collective."""
    belongs = Counter(place for group in groups for place in group.sequence)
    if len(set(belongs.values())) > 1:  # some have groups that the others lack
        return
    for group in groups:
        usual = {totals[place] for place in group.furthest}
        if len(usual) != 1 or 2 * len(group.furthest) <= len(group.members):
            continue
        for place, gap in group.behind_by.items():
            if totals[place] + gap > max(usual):
                graph.skipped.setdefault(place, group.where)


def _lateness(live: Sequence[RankFacts]) -> dict[int, float]:
    """The ranks whose records began later than the median of their peers, with the delay in
    seconds.  A few seconds do not count, since nodes start their ranks at different moments."""
    started = {place: rank.started for place, rank in enumerate(live) if rank.started is not None}
    usual = median(started.values()) if started else 0.0
    return {p: when - usual for p, when in started.items() if when - usual > LATER_SECONDS}


class Group:
    """One process group, and how far its members are."""

    def __init__(
        self,
        name: str,
        live: Sequence[RankFacts],
        members: set[int],
        lateness: Mapping[int, float],
        *,
        whole: bool,
    ) -> None:
        self._live = live
        self.name = name
        self.members = members
        self._younger = self._started_again(lateness)
        self.inside = {
            place: live[place].inside[name] for place in members if name in live[place].inside
        }
        size = max((live[place].group_sizes.get(name, 0) for place in members), default=0)
        self.sized = size > 0
        self.size = size or (2 if len(members) == 1 else 0)
        """Its number of members, at least two; 0 if unknown."""
        self.incomplete = self.size > len(members)
        """Whether it has members that are not here."""
        self.short = self.incomplete and not whole
        self._ambiguous = 0 < self.size < len(members)
        """Whether more ranks use its name than it has members: two groups share the name."""
        self.sequence = {
            place: live[place].collectives.get(name, 0)
            for place in (set() if self._ambiguous else members - self._younger)
        }
        entered = [self.sequence[place] for place in self.inside if place in self.sequence]
        self.reached = max(entered, default=None)
        self.behind = {
            place
            for place, sequence in self.sequence.items()
            if self.reached is not None and sequence < self.reached
        }
        self.lagging = self.behind & self.inside.keys()
        """Members that are behind, inside an earlier collective of the group."""
        share = 2 * len(self.lagging) - max(self.size, len(members))
        named = {place for place in self.lagging if self.inside[place].op != "unknown"}
        self._crowd = self.lagging if share > 0 else named if share == 0 else set()
        """The lagging members, if too many to be late: more than half of the group, or half of it
        in an operation with a name (else a rank may have left it, as its end is not recorded)."""
        self.furthest = {
            place for place in self.inside if self.sequence.get(place, -1) == self.reached
        }

    def _started_again(self, lateness: Mapping[int, float]) -> set[int]:
        """Members that were started again, so that their counts cannot be compared with others'.

        Their records began long after those of their peers; or they began later and lack half of
        the collectives of their peers, who could not have passed these without them."""
        late = lateness.keys() & self.members
        if not late:
            return set()
        most = max(self._live[at].collectives.get(self.name, 0) for at in self.members)
        return {
            at
            for at in late
            if lateness[at] > YOUNGER_SECONDS
            or 2 * self._live[at].collectives.get(self.name, 0) < most
        }

    def enter(self, graph: Graph) -> None:
        """Add to the graph what this group shows."""
        if not self.inside:
            return
        where = self.where
        not_come = self._not_come()
        graph.awaited |= dict.fromkeys(sorted(not_come), where)
        graph.waits |= self._waits(not_come)
        graph.short |= self.short
        if self.short:
            for place, call in self.inside.items():
                graph.missing.setdefault(place, (self.name, call.op))
        stuck = self._left_by_some()
        left_out, in_rooted = self._left_one_out()
        graph.waits |= stuck | in_rooted
        gone_on = self.sequence.keys() - self.inside.keys() if stuck else set()
        self._add_edge(graph, Kind.LEFT, stuck, gone_on)
        self._add_edge(graph, Kind.UNLIKE, in_rooted, left_out)
        together = self._together()
        graph.together |= together
        odd = self._differing(together) | left_out
        if self._is_most(self.lagging) and not not_come and self._all_lag():
            odd |= self.sequence.keys() - self.behind
        if any(self.inside[place].op == "backward" for place in stuck):
            odd |= self.sequence.keys() - self.inside.keys()
        graph.mismatched |= dict.fromkeys(sorted(odd), where)
        calls = [self.inside[place] for place in together]
        kinds = (_ops(calls), _elements(calls), self._steps(self._unnamed(together)))
        differs = bool(self._crowd) or any(len(kind) > 1 for kind in kinds)
        graph.differs |= differs
        self._add_member_edges(graph, not_come)
        if unlike := odd - left_out - gone_on:
            self._add_edge(graph, Kind.UNLIKE, self.inside.keys() - odd, unlike)
        elif left_out:
            self._add_edge(
                graph, Kind.NOT_COME, self.furthest, self._crowd
            ) if self._crowd else None
        elif differs:
            self._add_edge(graph, Kind.DIFFER, *self._sides(together))
        elif together:
            self._add_edge(graph, Kind.TOGETHER, together)

    def _add_member_edges(self, graph: Graph, not_come: set[int]) -> None:
        """Add edges from the ranks inside to members that have not come or are not here."""
        waits = self._waits(not_come)
        numbers = {self.sequence[place] for place in waits & self.sequence.keys()}
        for number in sorted(numbers, reverse=True)[:_LEVELS]:
            here = {place for place in waits if self.sequence.get(place, self.reached) == number}
            late = {place for place in not_come if self.sequence.get(place, -1) < number}
            self._add_edge(graph, Kind.NOT_COME, here, late) if late else None
        if self.short:
            self._add_edge(graph, Kind.UNSEEN, self.inside)
        elif self._ambiguous:
            self._add_edge(graph, Kind.AMBIGUOUS, self.inside)

    def _add_edge(
        self, graph: Graph, kind: Kind, waiters: Iterable[int], targets: Iterable[int] = ()
    ) -> None:
        """Add an edge, unless there are no waiters."""
        who = frozenset(waiters)
        if who:
            op = most_common(self.inside[place].op for place in who)
            number = max((self.sequence[p] for p in who if p in self.sequence), default=None)
            graph.edges.append(Edge(who, frozenset(targets), kind, self.name, op, number))

    def _sides(self, together: set[int]) -> tuple[set[int], set[int]]:
        """The two sides that do different things; neither is more than half of the group."""
        if self._crowd:
            return self.furthest, self._crowd
        does = {
            place: (
                call.op,
                call.elements,
                self._live[place].step if call.op == "unknown" else None,
            )
            for place in together
            if (call := self.inside[place])
        }
        usual = Counter(does.values()).most_common(1)[0][0]
        side = {place for place in together if does[place] == usual}
        return side, together - side

    @property
    def is_crowded(self) -> bool:
        """Whether most members of the group are inside."""
        return self._is_most(self.inside.keys())

    @property
    def behind_by(self) -> dict[int, int]:
        """The members outside that are behind, and by how many collectives."""
        reached = self.reached or 0
        return {p: reached - self.sequence[p] for p in sorted(self.behind - self.lagging)}

    @property
    def stepped_past(self) -> set[int]:
        """The members that have skipped the collective, by their step: they are at a later step
        than the members inside, who are most of the group."""
        return self._past if self._is_most(self.furthest) else set()

    def one_too_many(self, waits: set[int]) -> set[int]:
        """The members inside, if the collective is one too many: most of the group are at a later
        step without it, and wait there."""
        return self.furthest if self._is_most(self._past) and self._past <= waits else set()

    @property
    def _past(self) -> set[int]:
        """The members outside that are behind in collectives, but at a later step than the members
        inside."""
        last = max(self._steps(self.furthest), default=math.inf)
        outside = self.behind - self.lagging
        return {place for place in outside if (self._live[place].step or 0) > last}

    def _is_most(self, places: Collection[int]) -> bool:
        return 2 * len(places) > max(self.size, len(self.members))

    @property
    def where(self) -> Where:
        """The group, and the operation that most members inside are in."""
        return self.name, most_common(call.op for call in self.inside.values())

    def _not_come(self) -> set[int]:
        """The members that those inside wait for; a restarted member counts if it is outside."""
        outside = set() if self.reached is None else self._younger - self.inside.keys()
        return (self.behind - self._crowd) | outside

    def _waits(self, not_come: set[int]) -> set[int]:
        if self.short or self._ambiguous or not_come & self._younger:
            return set(self.inside)
        least = min(self.sequence.values(), default=0)
        return {
            place
            for place in self.inside
            if (self.sequence[place] > least if place in self.sequence else self.behind)
        }

    def _left_by_some(self) -> set[int]:
        """The members inside a collective that a few members have left for another; else empty.

        Those inside wait for its end. An operation without a name does not count, since its end is
        not recorded. A backward pass under DDP ends for all ranks or for none: a rank that has left
        it lacks the gradients that the others wait for.
        """
        left = {place for place, sequence in self.sequence.items() if sequence == self.reached}
        left -= self.inside.keys()
        few = 0 < 2 * len(left) < len(self.members)
        if self.behind or not few or not all(self._live[place].inside for place in left):
            return set()
        return {place for place, call in self.inside.items() if call.op != "unknown"}

    def _left_one_out(self) -> tuple[set[int], set[int]]:
        """The few members that have left out an operation with a root, and the members in it that
        wait for them.

        The few are behind, in an operation that waits for all members.  Ranks that are further have
        left the operation with a root, which releases some members before all have come.
        """
        rooted = {place for place in self.lagging if self.inside[place].op in _ROOTED}
        at = max((self.sequence[place] for place in rooted), default=0)
        late = {
            place
            for place in self.lagging - rooted
            if self.sequence[place] == at and self.inside[place].op != "unknown"
        }
        few = 0 < 2 * len(late) < len(self.members)
        return (late, rooted) if few else (set(), set())

    def _together(self) -> set[int]:
        counted = {place for place in self.inside if self.sequence.get(place) == self.reached}
        here = counted | (self._younger & self.inside.keys())
        several = len(here) > 1 or self.incomplete  # the others are of other roles
        whole = here == self.members and several and not self.short
        return here if whole and self.reached is not None else set()

    def _differing(self, together: set[int]) -> set[int]:
        """The members that do something else than more than half: another operation, another number
        of elements or, in an operation without a name, another step (a collective belongs to one
        step)."""
        calls = {place: self.inside[place] for place in together}
        ops, elements = _ops(calls.values()), _elements(calls.values())
        most = {op for op, count in ops.items() if 2 * count > len(calls)}
        odd = {place for place, call in calls.items() if most and call.op in ops.keys() - most}
        usual = median(elements.elements()) if elements else 0
        if 2 * elements[usual] > len(calls):
            odd |= {place for place, call in calls.items() if call.elements not in (None, usual)}
        unnamed = self._unnamed(together)
        steps = self._steps(unnamed)
        middle = median(steps.elements()) if steps else 0
        if 2 * steps[int(middle)] > len(calls):
            odd |= {place for place in unnamed if self._live[place].step not in (None, middle)}
        return odd

    def _unnamed(self, places: Iterable[int]) -> set[int]:
        """The ranks inside an operation without a name."""
        return {place for place in places if self.inside[place].op == "unknown"}

    def _steps(self, places: Iterable[int]) -> Counter[int]:
        """The known steps of these ranks."""
        return Counter(step for place in places if (step := self._live[place].step) is not None)

    def _all_lag(self) -> bool:
        """Whether all lagging members wait inside a collective with a name.

        The end of an operation without a name is not recorded, so its rank may have left it.
        """
        return not any(
            self.inside[place].op == "unknown" or self._live[place].wait_class in _NO_LONGER_INSIDE
            for place in self.lagging
        )


def _sends(live: Sequence[RankFacts], graph: Graph) -> None:
    """Add the waits of sends and receives for peers that are not in the matching call."""
    with_peer = {
        place: call
        for place, rank in enumerate(live)
        if (call := rank.inside.get(POINT_TO_POINT)) and call.peer is not None
    }
    offered = {(live[place].rank, call.peer, _end(call.op)) for place, call in with_peer.items()}
    first = {rank.rank: place for place, rank in reversed(list(enumerate(live)))}
    for place, call in with_peer.items():
        alone = frozenset((place,))
        if call.peer == live[place].rank:  # of another role: nobody sends to itself
            graph.waits.add(place)
            graph.short = graph.unseen = True
            graph.edges.append(Edge(alone, frozenset(), Kind.UNSEEN, POINT_TO_POINT, call.op))
            continue
        wanted = {"send": ("receive", ""), "receive": ("send", "")}.get(_end(call.op), _ENDS)
        if any((call.peer, live[place].rank, end) in offered for end in wanted):
            graph.edges.append(Edge(alone, frozenset(), Kind.TOGETHER, POINT_TO_POINT, call.op))
            continue
        graph.waits.add(place)
        if call.peer in first:
            graph.awaited.setdefault(first[call.peer], (POINT_TO_POINT, call.op))
            peer = frozenset((first[call.peer],))
            graph.edges.append(Edge(alone, peer, Kind.PEER, POINT_TO_POINT, call.op))
        else:
            graph.short = graph.unseen = True
            graph.edges.append(Edge(alone, frozenset(), Kind.UNSEEN, POINT_TO_POINT, call.op))


def _kernel_waits(live: Sequence[RankFacts], graph: Graph) -> None:
    """Add the waits outside of collectives, as the kernel shows them; within collectives the
    programs' records are more exact."""
    first = {rank.rank: place for place, rank in reversed(list(enumerate(live)))}
    for place, rank in enumerate(live):
        for wait in () if rank.inside else rank.kernel_waits:
            if wait.waits_for_nobody:
                continue
            graph.waits.add(place)
            if wait.through and wait.role == rank.role and wait.rank in first:
                graph.perhaps_awaited |= {first[wait.rank]} - graph.awaited.keys()
            mine = wait.rank is not None and wait.role == rank.role and wait.rank in first
            targets = frozenset((first[wait.rank],) if mine and wait.rank is not None else ())
            outside = None if mine else wait
            graph.awaited |= dict.fromkeys(targets - graph.awaited.keys(), ("", wait.how))
            graph.outside |= {place: outside} if outside else {}
            waiter = frozenset((place,))
            graph.edges.append(Edge(waiter, targets, Kind.KERNEL, "", wait.how, None, outside))


def _unrecorded_collectives(live: Sequence[RankFacts], graph: Graph) -> None:
    """Add waits in collectives that no program records.

    A rank whose GPU spins, or whose stack is in a call for its peers, is inside a collective.  It
    waits for ranks whose GPU runs no kernel, or whose stack is elsewhere."""
    if any(rank.collectives for rank in live):
        return
    calls = {
        at: SPINS if rank.device is Device.SPINS else rank.stack.call
        for at, rank in enumerate(live)
        if rank.overdue and rank.awaits_peers
    }
    away = {
        at
        for at, rank in enumerate(live)
        if at not in calls and (rank.device is Device.IDLE or _is_outside(rank.stack))
    }
    if not (calls and away):
        return
    graph.waits |= calls.keys()
    [(call, _)] = Counter(calls.values()).most_common(1)
    for place in away - graph.awaited.keys():
        graph.awaited[place] = "", call
        graph.below[place] = "not_launched"
        graph.perhaps_awaited.add(place)
    graph.edges.append(Edge(frozenset(calls), frozenset(away), Kind.NOT_LAUNCHED, "", call))


def _is_outside(stack: Stack) -> bool:
    """Whether the stack is known and waits for no GPU: a GPU may wait for the rank's peers."""
    return bool(stack.group) and stack.whom != Whom.DEVICE


_ENDS = ("send", "receive", "")


def _end(op: str) -> str:
    """Whether an operation is a `send` or a `receive`; empty if its name does not say."""
    return "send" if "send" in op else "receive" if "recv" in op or "receive" in op else ""


def _ops(calls: Iterable[Inside]) -> Counter[str]:
    return Counter(call.op for call in calls if call.op != "unknown")


def _elements(calls: Iterable[Inside]) -> Counter[float]:
    return Counter(call.elements for call in calls if call.elements is not None)


def most_common(words: Iterable[str]) -> str:
    """The most frequent word."""
    return Counter(words).most_common(1)[0][0]
