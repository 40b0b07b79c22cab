"""Scores of detectors: rates with exact confidence bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

CONFIDENCE = 0.95


def exact_bounds(hits: int, tries: int) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval of a rate, found by bisection."""
    if not tries:
        return 0.0, 1.0
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else _bisect(lambda p: 1 - _below(hits - 1, tries, p) - tail)
    high = 1.0 if hits == tries else _bisect(lambda p: tail - _below(hits, tries, p))
    return low, high


def _below(hits: int, tries: int, rate: float) -> float:
    """The probability of at most `hits` of `tries`."""
    return math.fsum(
        math.comb(tries, k) * rate**k * (1 - rate) ** (tries - k) for k in range(hits + 1)
    )


def _bisect(rising: object) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:  # type: ignore[operator]
            low = middle
        else:
            high = middle
    return (low + high) / 2


def shown(hits: int, tries: int) -> str:
    """A rate with its bounds: `58/60 = 97 % (88 to 100 %)`."""
    if not tries:
        return "none"
    low, high = exact_bounds(hits, tries)
    return f"{hits}/{tries} = {hits / tries:.0%} ({low:.0%} to {high:.0%})"


@dataclass
class Score:
    """What one detector did over a whole run."""

    name: str
    found: int = 0
    missed: int = 0
    false_alarms: int = 0
    silent: int = 0
    named: int = 0
    """Faults for which exactly the right ranks were named (or nobody, where that is right)."""
    seconds: list[float] = field(default_factory=list)
    """From the end of progress to the alarm."""

    def row(self) -> str:
        """A line of the table."""
        alarms = self.found + self.false_alarms
        faults = self.found + self.missed
        precision = self.found / alarms if alarms else 0.0
        recall = self.found / faults if faults else 0.0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        times = sorted(self.seconds)
        half = f"{times[len(times) // 2]:.0f} s" if times else "never"
        most = f"{times[min(len(times) - 1, int(0.9 * len(times)))]:.0f} s" if times else "never"
        return (
            f"| {self.name} | {half} | {most} | {shown(self.found, faults)} | "
            f"{shown(self.found, alarms)} | {f1:.3f} | {shown(self.named, faults)} |"
        )


HEADER = (
    "| detector | p50 | p90 | recall | precision | F1 | right ranks named |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)
