"""Compares each figure with its own past and with the peak of the device's model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from stagewatch.core.words import printable
from stagewatch.qualify.measure import Found
from stagewatch.qualify.past import Past

OF_PAST = (0.9, 0.75)
"""A figure below these shares of its past is a warning, or a failure."""
OF_PEAK = {"memory": (0.7, 0.5), "product": (0.5, 0.3)}
"""A figure below these shares of the model's peak is a warning, or a failure."""


class Level(IntEnum):
    """The outcome of a part."""

    SKIPPED = 0
    PASS = 1
    WARN = 2
    FAIL = 3


@dataclass(frozen=True, slots=True)
class Result:
    """A part on a device: the figure, its reference, and why it has not passed."""

    part: str
    device: str
    level: Level
    why: str = ""
    value: float | None = None
    usual: float | None = None
    """The median of its past."""
    runs: int = 0
    peak: float | None = None
    series: str = ""
    """The name of its series of figures in `past`."""


def judged(
    part: str, device: str, series: str, found: Found, past: Past, peak: float | None = None
) -> Result:  # fmt: skip
    """The verdict on a worker's results."""
    if "skipped" in found:
        return Result(part, device, Level.SKIPPED, str(found["skipped"]))
    if "late" in found:
        return Result(part, device, Level.FAIL, "it did not end in time")
    if "error" in found:
        return Result(part, device, Level.FAIL, printable(str(found["error"]), 200))
    value = float(found["value"])
    usual, runs = past.usual(series) or (None, 0)
    level, why = Level.PASS, ""
    if not found.get("same"):
        level, why = Level.FAIL, "it gave a wrong result"
    for whole, (warn, fail), of in (
        (usual, OF_PAST, "its past"),
        (peak, OF_PEAK.get(part, (0.0, 0.0)), "its model's peak"),
    ):
        share = value / whole if whole else 1.0
        worse = Level.FAIL if share < fail else Level.WARN if share < warn else Level.PASS
        if worse > level:
            level, why = worse, f"{share:.0%} of {of}"
    return Result(part, device, level, why, value, usual, runs, peak, series)


def verdict(results: Iterable[Result]) -> Level:
    """The worst outcome; if all parts were skipped, that is no pass."""
    return max((result.level for result in results), default=Level.SKIPPED)
