"""The wait-for graph of a role: who waits inside a collective, and for whom.

A rank inside a collective waits for the members of its group that have not come.  Whoever is
waited for and waits for nobody is at fault.
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
"""Classes of ranks that do not wait for a peer, although their last collective says so."""

_ROOTED = frozenset(op for op in OPS if op.split("_")[0] in ("broadcast", "gather", "scatter"))
_ROOTED |= {"reduce"}
"""Operations with a root, which a rank may leave before all have come."""

Where = tuple[str, str]
"""A group, and the operation that most of those inside of it are in."""
NOBODY: Mapping[int, Where] = MappingProxyType({})
SPINS = "a kernel that spins on the GPU"
_LEVELS = 4
"""The most collectives of one group that get edges; the furthest first."""


class Kind(str, Enum):
    """Why one waits for the other."""

    NOT_COME = "not_come"
    """The targets have not entered what the waiters are inside of."""
    LEFT = "left"
    """They have left it for another."""
    UNLIKE = "unlike"
    """They are in another operation, in another number of it, or at another step."""
    DIFFER = "differ"
    """Both sides differ, and neither is more than half of the group: they wait for each other."""
    PEER = "peer"
    """They should receive what the waiters send, or send what the waiters receive."""
    UNSEEN = "unseen"
    """No targets: members that do not live here."""
    AMBIGUOUS = "ambiguous"
    """No targets: more ranks use the name of the group than it has members."""
    KERNEL = "kernel"
    """The kernel shows that the waiters read, or wait for a lock of, what the targets have; without
    targets that is a process which is no rank, or somebody on another node."""
    NOT_LAUNCHED = "not_launched"
    """Below the program: the targets have not launched what the waiters have."""
    NOT_BEGUN = "not_begun"
    """Their GPUs have not begun it."""
    NO_BYTES = "no_bytes"
    """They send nothing, or the network does not bring it."""
    TOGETHER = "together"
    """No targets: all members are inside, so that none of them waits for a rank."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Some wait for others, by their place in the sequence that the graph was drawn from."""

    waiters: frozenset[int]
    targets: frozenset[int]
    kind: Kind
    group: str
    op: str
    """What the waiters are inside of."""
    sequence: int | None = None
    """The how manyth collective of the group that is, where they are counted."""
    outside: KernelWait | None = None
    """Whom or what they wait for that is no rank of their role."""
    lacks: str = ""
    """What does not come of the targets, in NCCL: `bytes`, or a `buffer` for those of waiters."""
    over: str = ""
    """The network device that does not bring it, where only one can be meant."""
    witness: str = ""
    """The library that shows it, in words; of `NOT_COME`, one that shows the contrary."""


@dataclass(slots=True)
class Graph:
    """Ranks by their place in the sequence that the graph was drawn from."""

    waits: set[int] = field(default_factory=set)
    """They are inside, and somebody has not come as far or cannot be seen."""
    awaited: dict[int, Where] = field(default_factory=dict)
    """They have not come where others are inside."""
    together: set[int] = field(default_factory=set)
    """They are inside one collective with all members of the group."""
    mismatched: dict[int, Where] = field(default_factory=dict)
    """They do not do what most members of their group do."""
    differs: bool = False
    """Whether members of a group are inside and do not do the same, half of them or all."""
    nowhere: set[int] = field(default_factory=set)
    """They have been in no collective, and the first one of all is waited in."""
    skipped: dict[int, Where] = field(default_factory=dict)
    """They have left out the collective that others are inside of, as their count in all or their
    step shows."""
    in_another: dict[int, Where] = field(default_factory=dict)
    """Most of their group are inside of its collective, and they inside of another group's."""
    short: bool = False
    """Whether somebody waits for members that do not live here."""
    unseen: bool = False
    """Whether those are no ranks of the job's other roles either."""
    missing: dict[int, Where] = field(default_factory=dict)
    """They are inside, and a member of the group does not live here; with their own operation."""
    outside: dict[int, KernelWait] = field(default_factory=dict)
    """They wait for a rank of another role, for a process that is no rank, or for an address, as
    the kernel shows."""
    perhaps_awaited: set[int] = field(default_factory=set)
    """They are awaited by way of a process alone that others have asked, or by who is in a
    collective that no program tells of: one of them may be meant."""
    below: dict[int, str] = field(default_factory=dict)
    """They are awaited as libraries, GPUs or stacks alone show it, with the evidence."""
    edges: list[Edge] = field(default_factory=list)
    """Who waits for whom, for people: nothing is decided by them."""


def draw(
    live: Sequence[RankFacts],
    awaited: Mapping[int, Where] = NOBODY,
    whole: Container[str] = (),
    shared: Container[str] = (),
    *,
    all_here: bool = False,
) -> Graph:
    """The graph of the live ranks of one role; other roles wait for the ranks in `awaited`.

    `shared`: groups whose other members are ranks of other roles; `whole`: those of these groups to
    which all members have come.  `all_here`: the job has no other ranks.
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
    """The groups of a role, and the ranks that have been in no group while others wait in the first
    collective of all.

    `whole`: groups whose other members are ranks of other roles, and to which all have come.
    `all_here`: the job has no other ranks.
    """
    lateness = _lateness(live)
    members: defaultdict[str, set[int]] = defaultdict(set)
    for place, rank in enumerate(live):
        for name in rank.collectives.keys() - {POINT_TO_POINT}:
            members[name].add(place)
    # A rank that has been in other groups alone has not come to the world yet.  Nor has one that
    # has been in none, to the making of groups or to the world's first collective: later, nobody
    # would count what it does.
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
    """Add the ranks that have been in none of the groups that lack members, if these lack as many:
    in the order of their numbers, as nobody knows who belongs to which."""
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
    """The members of a group most of which are inside, that are inside of another one instead in
    which few are, and to which all of these belong: they have left out what most wait in."""
    return {
        place: group.where
        for group in groups
        if group.is_crowded
        for wider in groups
        if group.members <= wider.members and not wider.is_crowded
        for place in sorted(group.behind & wider.inside.keys() - group.inside.keys())
    }


def _skips(groups: Sequence[Group], totals: Counter[int], graph: Graph) -> None:
    """Most of those that have come furthest in a group have entered as many collectives in all: a
    rank among them should have, and has but for those that its peers of another group wait in."""
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
    """If most of a group wait in a collective, and have entered equally many in all, a rank that
    has not come to it has entered too many meanwhile. It is missing for another reason than being
    late."""
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
    """The ranks whose records began later than the median of their peers, with the seconds: nodes
    do not start their ranks at one moment."""
    started = {place: rank.started for place, rank in enumerate(live) if rank.started is not None}
    usual = median(started.values()) if started else 0.0
    return {p: when - usual for p, when in started.items() if when - usual > LATER_SECONDS}


class Group:
    """One process group: where its members are."""

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
        """A group has two members at least; 0: not known."""
        self.incomplete = self.size > len(members)
        """It has members that are not here."""
        self.short = self.incomplete and not whole
        self._ambiguous = 0 < self.size < len(members)
        """More members than it has: two groups of one name."""
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
        """Behind, and inside an earlier collective of the group."""
        share = 2 * len(self.lagging) - max(self.size, len(members))
        told = {place for place in self.lagging if self.inside[place].op != "unknown"}
        self._crowd = self.lagging if share > 0 else told if share == 0 else set()
        """Those of them that are too many to be late. If they are half of the group, those in an
        operation without a name do not count: its end is unknown, so they may have left it."""
        self.furthest = {
            place for place in self.inside if self.sequence.get(place, -1) == self.reached
        }

    def _started_again(self, lateness: Mapping[int, float]) -> set[int]:
        """Members whose counts belong to another life than those of their peers. Their records
        began long after the others; or they began later, and lack half of the collectives that
        peers have entered since, which no peer can pass without them."""
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
        """Add what this group shows."""
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
        if told := odd - left_out - gone_on:
            self._add_edge(graph, Kind.UNLIKE, self.inside.keys() - odd, told)
        elif left_out:
            self._add_edge(
                graph, Kind.NOT_COME, self.furthest, self._crowd
            ) if self._crowd else None
        elif differs:
            self._add_edge(graph, Kind.DIFFER, *self._sides(together))
        elif together:
            self._add_edge(graph, Kind.TOGETHER, together)

    def _add_member_edges(self, graph: Graph, not_come: set[int]) -> None:
        """Who of those inside waits for which members, and for members that are not here."""
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
        """Add an edge, unless nobody waits."""
        who = frozenset(waiters)
        if who:
            op = most_common(self.inside[place].op for place in who)
            number = max((self.sequence[p] for p in who if p in self.sequence), default=None)
            graph.edges.append(Edge(who, frozenset(targets), kind, self.name, op, number))

    def _sides(self, together: set[int]) -> tuple[set[int], set[int]]:
        """Two sides, neither of them more than half of the group."""
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
        """Whether most of the group are inside."""
        return self._is_most(self.inside.keys())

    @property
    def behind_by(self) -> dict[int, int]:
        """How many collectives each is behind, of those that are in none of the group."""
        reached = self.reached or 0
        return {p: reached - self.sequence[p] for p in sorted(self.behind - self.lagging)}

    @property
    def stepped_past(self) -> set[int]:
        """Who has come to a later step than those inside, if these are most of the group, and so
        past what they are inside of."""
        return self._past if self._is_most(self.furthest) else set()

    def one_too_many(self, waits: set[int]) -> set[int]:
        """Those inside, if most of the group have come to a later step without that, and wait for
        somebody there."""
        return self.furthest if self._is_most(self._past) and self._past <= waits else set()

    @property
    def _past(self) -> set[int]:
        """Who is in no collective of the group, and at a later step than those inside."""
        last = max(self._steps(self.furthest), default=math.inf)
        outside = self.behind - self.lagging
        return {place for place in outside if (self._live[place].step or 0) > last}

    def _is_most(self, places: Collection[int]) -> bool:
        return 2 * len(places) > max(self.size, len(self.members))

    @property
    def where(self) -> Where:
        """The group, and what most of those inside are in."""
        return self.name, most_common(call.op for call in self.inside.values())

    def _not_come(self) -> set[int]:
        """Members that those inside wait for; a younger one is judged by whether it is inside."""
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
        """Most of the group, if they are still in one collective that some have left for another.

        They wait for it to end. An operation without a name does not count, because its end is
        unknown. A backward pass under DDP ends for all of its ranks or for none: a rank that has
        left it lacks the gradients that the others wait for.
        """
        left = {place for place, sequence in self.sequence.items() if sequence == self.reached}
        left -= self.inside.keys()
        few = 0 < 2 * len(left) < len(self.members)
        if self.behind or not few or not all(self._live[place].inside for place in left):
            return set()
        return {place for place, call in self.inside.items() if call.op != "unknown"}

    def _left_one_out(self) -> tuple[set[int], set[int]]:
        """A few that are behind in an operation that waits for all members, while others are in one
        with a root. Whoever is further has left that one, since it releases some members before all
        have come.

        The second set has the ranks in the one with a root: they wait for the few.
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
        """Members in another operation, or with another number of elements, than more than half; in
        an operation without a name, members at another step: one collective belongs to one step."""
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
        """Those inside an operation without a name."""
        return {place for place in places if self.inside[place].op == "unknown"}

    def _steps(self, places: Iterable[int]) -> Counter[int]:
        """The steps that these ranks are at, as far as they are known."""
        return Counter(step for place in places if (step := self._live[place].step) is not None)

    def _all_lag(self) -> bool:
        """Whether all that lag visibly wait, inside a collective that has a name.

        The end of an operation without a name is unknown: its rank may have left it.
        """
        return not any(
            self.inside[place].op == "unknown" or self._live[place].wait_class in _NO_LONGER_INSIDE
            for place in self.lagging
        )


def _sends(live: Sequence[RankFacts], graph: Graph) -> None:
    """A send waits for a peer that does not receive from this rank, and a receive for one that does
    not send to it."""
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
    """What ranks wait for outside of collectives. For collectives their programs are more exact."""
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
    """Where no program tells of its collectives: a rank whose GPU spins, or whose stack is in a
    call for its peers, is inside of one. It waits for those whose GPU runs no kernel, or whose
    stack is elsewhere."""
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
    """Whether it is known, and shows no wait for a GPU, which may wait for its peers."""
    return bool(stack.group) and stack.whom != Whom.DEVICE


_ENDS = ("send", "receive", "")


def _end(op: str) -> str:
    """Which end of a message an operation is; empty if its name does not say."""
    return "send" if "send" in op else "receive" if "recv" in op or "receive" in op else ""


def _ops(calls: Iterable[Inside]) -> Counter[str]:
    return Counter(call.op for call in calls if call.op != "unknown")


def _elements(calls: Iterable[Inside]) -> Counter[float]:
    return Counter(call.elements for call in calls if call.elements is not None)


def most_common(words: Iterable[str]) -> str:
    """The word that occurs most."""
    return Counter(words).most_common(1)[0][0]
