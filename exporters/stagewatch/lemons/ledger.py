"""Counts the interruptions of nodes or GPUs, and finds those with more than the fleet's rate
explains.

Interruptions are assumed to come at random (a Poisson process) in the time that jobs have a node. A
node is a lemon if even the lower end of its rate's interval is above the rate of the fleet, which
includes the node.  The intervals hold for all nodes together: with 63 nodes and 95 %, each interval
is one of 99.92 %, or most ledgers would accuse innocents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stagewatch.lemons.intervals import mean_between

JOIN_SECONDS = 86400.0
"""Events of a unit within this time after the beginning of an interruption, or before its end, are
part of it: an unrepaired fault comes back at once, and that alone makes no lemon."""

CONFIDENCE = 0.95
"""The confidence of the intervals of all nodes together."""

LEAST = 3
"""The least number of interruptions of a lemon, even if jobs had it for a short time."""


class Unit(NamedTuple):
    """A node, or a GPU of it by its UUID."""

    cluster: str
    node: str
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a unit from `start` to `end` (Unix seconds).

    `kind` is `named` (the judge named a rank there for holding up a job), `slow` (the judge found
    it slow), `xid` (a critical error of a GPU) or `out` (of service); `lost` are the GPU-seconds
    that it cost."""

    kind: str
    unit: Unit
    start: float
    end: float
    job: str = ""
    rank: str = ""
    lost: float = 0.0


@dataclass(slots=True)
class Row:
    """A node or GPU in the ledger."""

    unit: Unit
    hours: float
    """Hours in which jobs had it."""
    kinds: Counter[str] = field(default_factory=Counter)
    jobs: set[str] = field(default_factory=set)
    """The jobs in which it was named."""
    lost: float = 0.0
    """Lost GPU-hours."""
    interruptions: int = 0
    per_hour: tuple[float, float] = (0.0, 0.0)
    """The interval of its rate."""
    expected: float = 0.0
    """Number of interruptions at the fleet's rate."""
    lemon: bool = False
    failed: int | None = None
    """Number of jobs that failed on it, if accounting was asked."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All nodes, or all GPUs, of one cluster; the worst first."""

    rows: list[Row]
    hours: float
    interruptions: int
    per_hour: tuple[float, float]
    """The interval of the fleet's rate per unit."""

    @property
    def rate(self) -> float:
        """The fleet's interruptions per hour of a unit."""
        return self.interruptions / self.hours if self.hours else 0.0

    @property
    def lemons(self) -> list[Row]:
        """The units with more interruptions than the fleet's rate explains."""
        return [row for row in self.rows if row.lemon]


def make_ledger(
    hours: Mapping[Unit, float],
    events: Iterable[Event],
    failed: Mapping[Unit, int] | None = None,
) -> Ledger:
    """The ledger of the units with hours of jobs or with events."""
    of_unit: dict[Unit, list[Event]] = defaultdict(list)
    for event in events:
        of_unit[event.unit].append(event)
    rows = []
    for unit in sorted(hours.keys() | of_unit.keys()):
        row = Row(unit, hours.get(unit, 0.0))
        for event in of_unit.get(unit, ()):
            row.kinds[event.kind] += 1
            row.lost += event.lost / 3600
            if event.job:
                row.jobs.add(event.job)
        row.interruptions = joined(of_unit.get(unit, ()))
        if failed is not None:
            row.failed = failed.get(unit, 0)
        rows.append(row)
    # A unit that no job ever had has no rate, and its events interrupt nothing.
    known = [row for row in rows if row.hours > 0]
    whole, count = sum(row.hours for row in known), sum(row.interruptions for row in known)
    outside = (1 - CONFIDENCE) / 2
    for row in known:
        low, high = mean_between(row.interruptions, outside / len(known))
        row.per_hour = low / row.hours, high / row.hours
        row.expected = count / whole * row.hours
        row.lemon = row.interruptions >= LEAST and row.per_hour[0] > count / whole
    rows.sort(key=lambda row: (-row.per_hour[0], -row.interruptions, row.unit))
    low, high = mean_between(count, outside)
    ends = (low / whole, high / whole) if whole else (0.0, 0.0)
    return Ledger(rows, whole, count, ends)


def joined(events: Iterable[Event]) -> int:
    """The number of interruptions that the events of one unit make up."""
    count, over = 0, float("-inf")
    for event in sorted(events, key=lambda one: one.start):
        if event.start > over:
            count, over = count + 1, event.start + JOIN_SECONDS
        over = max(over, event.end)
    return count
