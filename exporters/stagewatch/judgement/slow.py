"""Which ranks of a job work longer than their peers, step after step, and so hold all of them up.

All ranks of a synchronous job take equally long for a step; what differs is how much of it they
wait in collectives.  Compared is the time outside of them, the own work (docs/slow-ranks.md).
`alerts/slow.rules.yaml` has its sums, in windows of a minute, each 15 s; a rank's *excess* in a
window is its own work over the median of its peers, less 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple, TypeVar

WINDOW_SECONDS = 15.0
"""From one window to the next, and from one look to the next."""
LEAST_EXCESS, DEVIATIONS = 0.05, 3.0
"""A rank stands out in a window with so much more work than the median of its peers, and so many
median deviations, as they were over ten minutes: four ranks alone have an unreliable one."""
LATELY_SECONDS, LATELY_WINDOWS = 120.0, 6
"""For how long, and in how many of the eight windows of it, a slow rank stands out."""
UNNUMBERED_SECONDS, UNNUMBERED_WINDOWS = 180.0, 10
"""The same where steps have no numbers: a pause of a minute is seen in nine windows at most."""
STEPS_SECONDS, LEAST_STEPS = 180.0, 3
"""Over which single steps are compared, where ranks number them, and how many there must be."""
STANDARD_ERRORS = 1.75
"""By so many standard errors of their mean these take longer than those of its peers, by how much
more they vary.  A single pause, however long, makes 1, as it is as much of the mean as of its
error; three make 1.73."""
STEPS_IN_WINDOWS, STEPS_LASTING = 2.0, 1.5
"""Steps at least in two minutes, now and as a mean of ten, where ranks number them.  Of longer
steps a window shows how long that one was, and rollouts, say, are long by chance."""
LASTING_SECONDS, LASTING_WINDOWS = 600.0, 20
"""Over which a little more work counts, and how many windows of it there must be."""
LASTING_EXCESS, LASTING_DEVIATIONS = 0.07, 2.0
"""So much more work, and so many standard deviations of that rank's own windows, is slow in the
mean of these: some six errors of the mean, as ten windows of a minute are independent."""
BREAK_SECONDS = 300.0
"""A rank that was slow so lately has been slow since then."""
NODE_RANKS = 2
"""Ranks at least on a node for it to be slow as a whole."""
TURNS_SECONDS, TURNS_WINDOWS, TURNS_RANKS = 300.0, 16, 2
"""Slowness rotates if somebody stands out in so many of the 20 windows of it, and it is not always
the same one ..."""
TURNS_COST, TURNS_STEPS = 0.1, 4.0
"""... if that costs the job a tenth of its time, and, where ranks number their steps, with so many
of them in two minutes."""
STEP_TURN_SECONDS, STEP_TURN_LOOKS = 120.0, 4
"""For how long, and at how many looks, turns that are taken each step must be seen."""
STEP_TURN_EXPLAINS = 0.5, 1.5
"""Of the variance of own work turns explain half at least: what remains is noise.  They explain 1
and no more, but for chance; rare long steps of all ranks seem to explain many times as much."""
STEP_TURN_VARIES = 0.3
"""Of what a turn costs, the most that the time of steps may vary: somebody has a turn in nine of
ten steps, as sqrt(0.9 * 0.1) is 0.3."""
LEAST_PEERS = 3
"""There is no median of two."""

_SLACK = WINDOW_SECONDS / 2
"""Looks are not exactly as far apart as windows."""


class Role(NamedTuple):
    """A role of a job."""

    cluster: str
    job_id: str
    role: str


class Rank(NamedTuple):
    """A rank, by what its series are labelled with."""

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
    """What a node has of a role."""

    cluster: str
    node: str
    job_id: str
    role: str


@dataclass(frozen=True, slots=True)
class Steps:
    """Own work in a rank's latest single steps, and what its peers have in the median: seconds."""

    count: float
    mean: float
    variance: float
    peers_mean: float
    peers_variance: float


@dataclass(frozen=True, slots=True)
class Suspect:
    """The series that decide whether a rank is slow."""

    stood_out: Sequence[float] = ()
    """When it stood out: Unix times of looks."""
    excess: float | None = None
    """Of its windows of two minutes, in the mean."""
    excess_lasting: float | None = None
    """The same of ten minutes ..."""
    deviation: float = 0.0
    """... with its standard deviation ..."""
    windows: float = 0.0
    """... and how many windows these have."""
    role_steps: float | None = None
    """Steps that its role has made in two minutes; None where they have no numbers."""
    role_steps_lasting: float | None = None
    """The same as a mean of ten minutes."""
    steps: Steps | None = None
    """Its latest single steps; None where they have no numbers."""


@dataclass(frozen=True, slots=True)
class Moments:
    """How single steps of a role vary over five minutes: sums over its ranks."""

    ranks: float
    third: float
    """Third central moments of own work."""
    variance: float
    """Of own work."""
    time: float
    """Mean step, in seconds."""
    time_variance: float


@dataclass(frozen=True, slots=True)
class Turn:
    """That another rank of a role is slow in each step."""

    cost: float
    """The share of its time that the job loses."""
    ranks: int
    """How many take turns."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Who of a role stood out at one look."""

    time: float
    ranks: frozenset[Rank]
    cost: float
    """The share of its time that the job loses by whoever stood out the most."""


def in_windows(suspect: Suspect, at: float) -> bool:
    """Whether it stood out in most of the latest windows.  A single pause of half a minute is
    enough for that, as windows overlap: a save, a compilation, a lost request."""
    if suspect.role_steps is not None and suspect.role_steps < STEPS_IN_WINDOWS:
        return False
    return _looks(suspect.stood_out, at, LATELY_SECONDS) >= LATELY_WINDOWS


def lately(suspect: Suspect, at: float) -> float | None:
    """The excess of a rank that has much more work in most of the latest windows, and not by a
    pause."""
    if not in_windows(suspect, at):
        return None
    if suspect.steps is None:
        looks = _looks(suspect.stood_out, at, UNNUMBERED_SECONDS)
        return suspect.excess if looks >= UNNUMBERED_WINDOWS else None
    return suspect.excess if in_steps(suspect.steps) else None


def in_steps(steps: Steps) -> bool:
    """Whether its single steps take longer than its peers', by more than chance or a pause.

    What its steps vary by counts as far as it is more than its peers': pauses of all ranks accuse
    nobody, and excuse nobody either.
    """
    if steps.count < LEAST_STEPS:
        return False
    variance = max(0.0, steps.variance - steps.peers_variance)
    return steps.mean - steps.peers_mean > STANDARD_ERRORS * math.sqrt(variance / (steps.count - 1))


def lasting(suspect: Suspect) -> float | None:
    """The excess of a rank that has a little more work for long."""
    steps, excess = suspect.role_steps_lasting, suspect.excess_lasting
    if steps is not None and steps < STEPS_LASTING:
        return None
    if excess is None or suspect.windows < LASTING_WINDOWS:
        return None
    return excess if excess > max(LASTING_EXCESS, LASTING_DEVIATIONS * suspect.deviation) else None


def slow_nodes(slow: Mapping[Rank, float], sizes: Mapping[Node, float]) -> dict[Node, float]:
    """How many times as long the ranks of a node work where all of them are slow.

    `sizes`: how many ranks of the role each node has.
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
    """Where it runs."""
    return Node(rank.cluster, rank.node, rank.job_id, rank.role)


def rotates(standings: Iterable[Standing], at: float, role_steps: float | None) -> int | None:
    """How many ranks take turns in standing out by the minute; None where they do not."""
    some = [one for one in standings if one.time > at - TURNS_SECONDS + _SLACK]
    ranks = frozenset[Rank]().union(*(one.ranks for one in some))
    if len(some) < TURNS_WINDOWS or len(ranks) < TURNS_RANKS:
        return None
    if role_steps is not None and role_steps < TURNS_STEPS:
        return None
    return len(ranks) if fmean(one.cost for one in some) > TURNS_COST else None


def step_turn(moments: Moments) -> Turn | None:
    """Whether another rank is slow in each step.

    Where one of n ranks takes d longer in each step, the third central moments of all sum up to
    d^3 (1 - 1/n) (1 - 2/n); noise that is as often short as long adds nothing to them.
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
    """What is remembered from look to look, for five minutes at most."""

    last: float = 0.0
    """When the last look was completed."""
    stood_out: dict[Rank, list[float]] = field(default_factory=dict)
    standings: dict[Role, list[Standing]] = field(default_factory=dict)
    since: dict[Rank, tuple[float, float]] = field(default_factory=dict)
    """Since when a rank is slow, and when it was last."""
    turns: dict[Role, list[tuple[float, Turn]]] = field(default_factory=dict)
    """At which looks a role's ranks took turns each step."""

    def stand_out(self, costs: Mapping[Rank, float], at: float) -> None:
        """Note who stands out, and the share of its time that the job loses by each."""
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
        """Note who is slow: since two minutes before it is seen first, over short breaks."""
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
        """Note in which roles another rank is slow each step."""
        begin = at - STEP_TURN_SECONDS + _SLACK
        self.turns = _between(self.turns, begin, self.last, lambda one: one[0])
        for role, turn in turns.items():
            self.turns.setdefault(role, []).append((at, turn))

    def lasting_turns(self) -> dict[Role, Turn]:
        """The roles in which that has been so at all looks of two minutes."""
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
    """What was noted after `begin`, and not at a look that failed later on."""
    kept = {
        key: [one for one in items if begin < time(one) <= last] for key, items in found.items()
    }
    return {key: items for key, items in kept.items() if items}


def _looks(times: Sequence[float], at: float, seconds: float) -> int:
    return sum(time > at - seconds + _SLACK for time in times)
