"""Which ranks of a job work longer than their peers, step after step, and so hold all of them up.

All ranks of a synchronous job take equally long for a step; they differ in how long they wait in
collectives.  So the judge compares *own work*, the time outside of collectives
(docs/slow-ranks.md).  `alerts/slow.rules.yaml` sums it up over windows of a minute, every 15
s.  The *excess* of a rank in a window is its own work divided by the median of its peers, minus
1."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple, TypeVar

WINDOW_SECONDS = 15.0
"""The time between two windows, and between two looks."""
LEAST_EXCESS, DEVIATIONS = 0.05, 3.0
"""A rank stands out in a window if its excess is above the first number plus the second times the
median absolute deviation of its peers, a mean of ten minutes, as one window says little."""
LATELY_SECONDS, LATELY_WINDOWS = 120.0, 6
"""A slow rank stands out in so many of the eight windows of this time."""
UNNUMBERED_SECONDS, UNNUMBERED_WINDOWS = 180.0, 10
"""The same if steps have no numbers: a pause of a minute shows in at most nine windows."""
STEPS_SECONDS, LEAST_STEPS = 180.0, 3
"""With numbered steps: the time over which single steps are compared, and how many are needed."""
STANDARD_ERRORS = 1.75
"""The steps of a slow rank take longer than its peers' by more than so many standard errors of the
mean; of the variance, only what exceeds the peers' counts.  A single pause of any length reaches 1,
as it adds as much to the error as to the mean; three pauses reach 1.73."""
STEPS_IN_WINDOWS, STEPS_LASTING = 2.0, 1.5
"""If ranks number their steps: the least number of steps in two minutes, now and as a mean of ten
minutes.  With fewer, a window shows the length of a single step, which varies by chance."""
LASTING_SECONDS, LASTING_WINDOWS = 600.0, 20
"""The time over which a small excess counts, and the least number of windows in it."""
LASTING_EXCESS, LASTING_DEVIATIONS = 0.07, 2.0
"""A rank is slow if its mean excess of that time is above both this number and so many standard
deviations of its own windows: some six errors of the mean, as ten windows are independent."""
BREAK_SECONDS = 300.0
"""A rank that becomes slow again within this time counts as slow all the time."""
NODE_RANKS = 2
"""The least number of ranks on a node that is slow as a whole."""
TURNS_SECONDS, TURNS_WINDOWS, TURNS_RANKS = 300.0, 16, 2
"""Slowness rotates if a rank stands out in so many of the 20 windows of this time, and these are at
least so many ranks ..."""
TURNS_COST, TURNS_STEPS = 0.1, 4.0
"""... provided that it costs the job this share of its time and, if ranks number their steps, that
there are so many steps in two minutes."""
STEP_TURN_SECONDS, STEP_TURN_LOOKS = 120.0, 4
"""Turns at every step must be seen at so many looks within this time."""
STEP_TURN_EXPLAINS = 0.5, 1.5
"""The least and the largest share of the variance of own work that turns explain, beside
noise.  More than 1 is chance; rare long steps of all ranks seem to explain many times as much."""
STEP_TURN_VARIES = 0.3
"""The largest deviation of the time of steps, as a share of the cost of a turn: sqrt(0.9 * 0.1) is
0.3, so a rank has a turn in at least nine of ten steps."""
LEAST_PEERS = 3
"""The least number of ranks to compare: a median needs more than two."""

_SLACK = WINDOW_SECONDS / 2
"""Tolerance, since looks are not exactly as far apart as windows."""


class Role(NamedTuple):
    """A role of a job."""

    cluster: str
    job_id: str
    role: str


class Rank(NamedTuple):
    """A rank, by the labels of its series."""

    cluster: str
    node: str
    job_id: str
    role: str
    rank: str

    @property
    def role_key(self) -> Role:
        """Its role."""
        return Role(self.cluster, self.job_id, self.role)


class Node(NamedTuple):
    """The ranks of a role on one node."""

    cluster: str
    node: str
    job_id: str
    role: str


@dataclass(frozen=True, slots=True)
class Steps:
    """Own work per step in the latest steps of a rank, and the medians of its peers, in seconds."""

    count: float
    mean: float
    variance: float
    peers_mean: float
    peers_variance: float


@dataclass(frozen=True, slots=True)
class Suspect:
    """The series that decide whether a rank is slow."""

    stood_out: Sequence[float] = ()
    """The looks at which it stood out, Unix times."""
    excess: float | None = None
    """Mean excess over two minutes."""
    excess_lasting: float | None = None
    """Mean excess over ten minutes."""
    deviation: float = 0.0
    """Standard deviation of the excess over ten minutes."""
    windows: float = 0.0
    """Number of windows in ten minutes."""
    role_steps: float | None = None
    """Steps of its role in two minutes; None if steps have no numbers."""
    role_steps_lasting: float | None = None
    """The same as a mean over ten minutes."""
    steps: Steps | None = None
    """Its latest steps; None if steps have no numbers."""


@dataclass(frozen=True, slots=True)
class Moments:
    """How single steps of a role vary over five minutes: sums over its ranks."""

    ranks: float
    third: float
    """Third central moment of own work, in cubed seconds."""
    variance: float
    """Variance of own work, in squared seconds."""
    time: float
    """Mean time of a step, in seconds."""
    time_variance: float
    """Variance of the time of a step, in squared seconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Turns of the ranks of a role: another one is slow in every step."""

    cost: float
    """The share of its time that the job loses."""
    ranks: int
    """Number of ranks that take turns."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The ranks of a role that stood out at one look."""

    time: float
    ranks: frozenset[Rank]
    cost: float
    """The share of its time that the job loses by the rank that stood out most."""


def in_windows(suspect: Suspect, at: float) -> bool:
    """Whether the rank stood out in most of the latest windows.  As windows overlap, a single pause
    of half a minute is enough for that: a save, a compilation, a lost request."""
    if suspect.role_steps is not None and suspect.role_steps < STEPS_IN_WINDOWS:
        return False
    return _looks(suspect.stood_out, at, LATELY_SECONDS) >= LATELY_WINDOWS


def lately(suspect: Suspect, at: float) -> float | None:
    """The excess of a rank that stood out in most of the latest windows, and not by a pause; None
    for other ranks."""
    if not in_windows(suspect, at):
        return None
    if suspect.steps is None:
        looks = _looks(suspect.stood_out, at, UNNUMBERED_SECONDS)
        return suspect.excess if looks >= UNNUMBERED_WINDOWS else None
    return suspect.excess if in_steps(suspect.steps) else None


def in_steps(steps: Steps) -> bool:
    """Whether the steps of a rank take longer than those of its peers, by more than chance or a
    pause.

    Of the variance, only what exceeds that of the peers counts: pauses of all ranks neither accuse
    nor excuse a rank.
    """
    if steps.count < LEAST_STEPS:
        return False
    variance = max(0.0, steps.variance - steps.peers_variance)
    return steps.mean - steps.peers_mean > STANDARD_ERRORS * math.sqrt(variance / (steps.count - 1))


def lasting(suspect: Suspect) -> float | None:
    """The excess of a rank that has long had a little more work; None for other ranks."""
    steps, excess = suspect.role_steps_lasting, suspect.excess_lasting
    if steps is not None and steps < STEPS_LASTING:
        return None
    if excess is None or suspect.windows < LASTING_WINDOWS:
        return None
    return excess if excess > max(LASTING_EXCESS, LASTING_DEVIATIONS * suspect.deviation) else None


def slow_nodes(slow: Mapping[Rank, float], sizes: Mapping[Node, float]) -> dict[Node, float]:
    """The mean ratio of the ranks of every node whose ranks are all slow.

    `slow`: how many times as long as its peers a rank works; `sizes`: the number of ranks of the
    role on a node.
    """
    ratios: defaultdict[Node, list[float]] = defaultdict(list)
    for rank, ratio in slow.items():
        ratios[node_of(rank)].append(ratio)
    return {
        node: fmean(all_of)
        for node, all_of in ratios.items()
        if len(all_of) >= NODE_RANKS and len(all_of) == sizes.get(node)
    }


def role_of(labels: Mapping[str, str]) -> Role:
    """The role that the labels of a series name."""
    return Role(*(labels.get(name, "") for name in Role._fields))


def node_of(rank: Rank) -> Node:
    """The node of a rank."""
    return Node(rank.cluster, rank.node, rank.job_id, rank.role)


def rotates(standings: Iterable[Standing], at: float, role_steps: float | None) -> int | None:
    """The number of ranks that take turns in standing out, minute by minute; None if they do
    not."""
    some = [one for one in standings if one.time > at - TURNS_SECONDS + _SLACK]
    ranks = frozenset[Rank]().union(*(one.ranks for one in some))
    if len(some) < TURNS_WINDOWS or len(ranks) < TURNS_RANKS:
        return None
    if role_steps is not None and role_steps < TURNS_STEPS:
        return None
    return len(ranks) if fmean(one.cost for one in some) > TURNS_COST else None


def step_turn(moments: Moments) -> Turn | None:
    """The turns of a role in which another rank is slow in every step; None if there are none.

    If one of n ranks takes d longer in every step, the third central moments of all ranks sum up to
    d^3 (1 - 1/n) (1 - 2/n).  Symmetric noise adds nothing to them.
    """
    n = moments.ranks
    if n < LEAST_PEERS or min(moments.third, moments.variance, moments.time) <= 0:
        return None
    turn = (moments.third / (1 - 1 / n) / (1 - 2 / n)) ** (1 / 3)
    explains = turn**2 * (1 - 1 / n) / moments.variance
    varies = math.sqrt(max(0.0, moments.time_variance / n)) / turn
    least, most = STEP_TURN_EXPLAINS
    if not (least < explains < most and varies < STEP_TURN_VARIES):
        return None
    cost = turn / (moments.time / n)
    return Turn(cost, int(n)) if cost > TURNS_COST else None


@dataclass(slots=True)
class Past:
    """What is remembered between looks, for at most five minutes."""

    last: float = 0.0
    """When the last look was completed."""
    stood_out: dict[Rank, list[float]] = field(default_factory=dict)
    """The looks at which ranks stood out."""
    standings: dict[Role, list[Standing]] = field(default_factory=dict)
    since: dict[Rank, tuple[float, float]] = field(default_factory=dict)
    """Since when a rank has been slow, and when it was last seen slow."""
    turns: dict[Role, list[tuple[float, Turn]]] = field(default_factory=dict)
    """The looks at which another rank of a role was slow in every step."""

    def stand_out(self, costs: Mapping[Rank, float], at: float) -> None:
        """Note the ranks that stand out, with the share of its time that the job loses by each."""
        begin = at - TURNS_SECONDS + _SLACK
        self.stood_out = _between(self.stood_out, begin, self.last, lambda time: time)
        self.standings = _between(self.standings, begin, self.last, lambda one: one.time)
        by_role: defaultdict[Role, dict[Rank, float]] = defaultdict(dict)
        for rank, cost in costs.items():
            self.stood_out.setdefault(rank, []).append(at)
            by_role[rank.role_key][rank] = cost
        for role, ranks in by_role.items():
            one = Standing(at, frozenset(ranks), max(ranks.values()))
            self.standings.setdefault(role, []).append(one)

    def suspects(self, at: float) -> set[Rank]:
        """Ranks that stood out in most of the latest windows."""
        return {
            rank
            for rank, times in self.stood_out.items()
            if _looks(times, at, LATELY_SECONDS) >= LATELY_WINDOWS
        }

    def slow(self, ranks: Iterable[Rank], at: float) -> None:
        """Note the slow ranks.  A rank counts as slow from two minutes before it is first seen
        slow, and over short breaks."""
        for rank in ranks:
            begin, _ = self.since.get(rank, (at - LATELY_SECONDS, at))
            self.since[rank] = begin, at
        self.since = {
            rank: times for rank, times in self.since.items() if times[1] > at - BREAK_SECONDS
        }

    def slow_roles(self) -> set[Role]:
        """Roles that have had a slow rank within five minutes."""
        return {rank.role_key for rank in self.since}

    def take_turns(self, turns: Mapping[Role, Turn], at: float) -> None:
        """Note the roles in which another rank is slow in every step."""
        begin = at - STEP_TURN_SECONDS + _SLACK
        self.turns = _between(self.turns, begin, self.last, lambda one: one[0])
        for role, turn in turns.items():
            self.turns.setdefault(role, []).append((at, turn))

    def lasting_turns(self) -> dict[Role, Turn]:
        """The roles with turns at all looks of two minutes."""
        return {
            role: looks[-1][1]
            for role, looks in self.turns.items()
            if len(looks) >= STEP_TURN_LOOKS
        }


Key = TypeVar("Key")
Item = TypeVar("Item")


def _between(
    found: Mapping[Key, list[Item]], begin: float, last: float, time: Callable[[Item], float]
) -> dict[Key, list[Item]]:
    """The items noted after `begin` and up to the last completed look."""
    kept = {
        key: [one for one in items if begin < time(one) <= last] for key, items in found.items()
    }
    return {key: items for key, items in kept.items() if items}


def _looks(times: Sequence[float], at: float, seconds: float) -> int:
    return sum(time > at - seconds + _SLACK for time in times)
