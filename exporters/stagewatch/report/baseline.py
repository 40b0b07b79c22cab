"""What a series usually is, and when it leaves that: mean and two sigma, median and MAD."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Values = Sequence[float | None]
"""Values on a grid of times; None where nothing is known, which is never taken for a value."""

MIN_SAMPLES = 5
"""Fewer than these make no baseline."""

MAD_TO_SIGMA = 1.4826
"""The MAD of a normal distribution times this is its standard deviation."""

ROBUST_SIGMAS = 6.0
EFFECT = 0.05
"""A deviation is at least this share of the median."""

AGE_FACTOR = 1.5
"""An age deviates beyond this many times the highest of the baseline."""

PERSISTENCE = (3, 4)
"""A deviation is sustained when so many of so many values in a row deviate."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Statistics of the known values of a series; standard deviation of a sample (n - 1)."""

    count: int
    mean: float
    deviation: float
    median: float
    mad: float
    low: float
    high: float

    @property
    def two_sigma(self) -> tuple[float, float]:
        """Mean - 2 sigma, mean + 2 sigma."""
        return self.mean - 2 * self.deviation, self.mean + 2 * self.deviation


@dataclass(frozen=True, slots=True)
class Judge:
    """Says which values deviate.  `floor` is a difference, in the series' unit, that never does.

    Ages (`age`) grow by themselves, so that only their highest means anything.
    """

    baseline: Baseline
    floor: float
    age: bool = False

    def deviates(self, value: float) -> bool:
        """Outside all of the baseline, by six robust sigmas, 5 % of the median and the floor;
        an age: half as much again as the highest, and the floor."""
        base = self.baseline
        if self.age:
            return value > AGE_FACTOR * base.high and value - base.high > self.floor
        if base.low <= value <= base.high:
            return False
        distance = abs(value - base.median)
        return distance > max(
            ROBUST_SIGMAS * MAD_TO_SIGMA * base.mad, EFFECT * abs(base.median), self.floor
        )

    def beyond_two_sigma(self, value: float) -> bool:
        """The plain method, which the report shows beside the robust one."""
        low, high = self.baseline.two_sigma
        return not low <= value <= high

    def severity(self, value: float) -> float:
        """How many times the distance at which a value begins to deviate; 0 inside the baseline."""
        base = self.baseline
        if self.age:
            limit = max((AGE_FACTOR - 1) * base.high, self.floor)
            return max(0.0, value - base.high) / (limit or math.inf)
        if base.low <= value <= base.high:
            return 0.0
        limit = max(ROBUST_SIGMAS * MAD_TO_SIGMA * base.mad, EFFECT * abs(base.median), self.floor)
        return abs(value - base.median) / (limit or math.inf)


def baseline_of(values: Values) -> Baseline | None:
    """The baseline of the known values; None where there are too few of them."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if len(known) < MIN_SAMPLES:
        return None
    median = statistics.median(known)
    return Baseline(
        count=len(known),
        mean=statistics.fmean(known),
        deviation=statistics.stdev(known),
        median=median,
        mad=statistics.median([abs(value - median) for value in known]),
        low=min(known),
        high=max(known),
    )


def first_sustained(flags: Sequence[bool | None], begin: int = 0) -> int | None:
    """Index, not below `begin`, of the first flag of a sustained run; None if there is none.

    Unknown flags do not count, neither way, and a gap of as many as a run is long ends the run.
    """
    needed, among = PERSISTENCE
    recent: list[tuple[int, bool]] = []
    for index in range(begin, len(flags)):
        flag = flags[index]
        if recent and index - recent[-1][0] > among:
            recent.clear()
        if flag is None:
            continue
        recent = [*recent[-(among - 1) :], (index, flag)]
        raised = [at for at, up in recent if up]
        if len(raised) >= needed:
            return raised[0]
    return None
