"""Alerts and verdicts while they held, from the series that the rules left."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.prometheus.api import Track

NOTES = ("FaultInjected", "FaultMarkerForgotten", "PageDuringFault")
"""Alerts that speak of the marker itself, or repeat another: no detection."""

VERDICTS = {"job:rl_stall:culprit": "culprit", "rank:rl_straggler:ratio": "straggler"}
"""Recording rules that name a rank."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert or verdict, from its first sample to its last.  `open`: still there at the end."""

    name: str
    labels: Mapping[str, str]
    start: float
    end: float
    open: bool

    @property
    def severity(self) -> str:
        """critical, warning, info; empty for a verdict."""
        return self.labels.get("severity", "")


def firings(tracks: Iterable[Track], until: float) -> list[Firing]:
    """All runs of samples of ALERTS or of a verdict, by their start.

    Two that differ only in the evidence of a verdict are two.
    """
    found = []
    for track in tracks:
        name = track.labels.get("alertname") or VERDICTS.get(track.labels.get("__name__", ""), "")
        if not name or name in NOTES:
            continue
        times = [when for when, _ in track.samples]
        for start, end in runs(times):
            late = until - end < 2.5 * usual_gap(times)
            found.append(Firing(name, track.labels, start, end, late))
    return sorted(found, key=lambda each: (each.start, each.name))


def runs(times: Sequence[float], gap: float | None = None) -> list[tuple[float, float]]:
    """Runs of times without a hole; a hole is `gap` or 2.5 times the usual distance."""
    if not times:
        return []
    limit = 2.5 * usual_gap(times) if gap is None else gap
    found = [(times[0], times[0])]
    for when in times[1:]:
        start, end = found[-1]
        if when - end > limit:
            found.append((when, when))
        else:
            found[-1] = (start, when)
    return found


def usual_gap(times: Sequence[float]) -> float:
    """The median distance of times; a minute where there is but one."""
    if len(times) < 2:
        return 60.0
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))
