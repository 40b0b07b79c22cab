"""Histograms that grow for as long as the agent lives, and outlive it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stagewatch.core.exposition import Histogram

WAIT_BOUNDS = (1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0, 259200.0)
"""Seconds; a pending alert looks at 30 minutes."""

RUN_BOUNDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 10800.0, 21600.0, 43200.0, 86400.0, 259200.0)


@dataclass(slots=True)
class GrowingHistogram:
    """Counts of values by upper bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def exposed(self) -> Histogram:
        """As it stands in an exposition."""
        cumulative, total = [], 0
        for number in self.counts[:-1]:
            total += number
            cumulative.append(total)
        return Histogram(self.bounds, tuple(cumulative), total + self.counts[-1], self.sum)

    def dump(self) -> dict[str, Any]:
        """For the state file."""
        return {"bounds": list(self.bounds), "counts": self.counts, "sum": self.sum}

    @classmethod
    def load(cls, saved: Mapping[str, Any], bounds: tuple[float, ...]) -> GrowingHistogram:
        """From the state file; empty where the bounds are not those of this version."""
        counts = [int(number) for number in saved["counts"]]
        if tuple(saved["bounds"]) != bounds or len(counts) != len(bounds) + 1:
            return cls(bounds)
        return cls(bounds, counts, float(saved["sum"]))
