"""Series over time on one grid, with gaps left as gaps."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagewatch.core.errors import SourceError
from stagewatch.prometheus.api import PrometheusApi, Track
from stagewatch.report.periods import Period, iso
from stagewatch.report.progress import Progress

MAX_COLUMNS = 1500
"""Times that a report looks at; a longer period is looked at in larger steps."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Times at `start`, `start + step`, ...: `count` of them."""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """The last time."""
        return self.start + (self.count - 1) * self.step

    def time(self, index: int) -> float:
        """When a column is."""
        return self.start + index * self.step

    def index(self, when: float) -> int:
        """The first column not before a time; may lie outside."""
        return math.ceil((when - self.start) / self.step - 1e-6)


@dataclass(frozen=True, slots=True)
class Line:
    """One series on the grid; None where no sample was taken."""

    labels: Mapping[str, str]
    values: list[float | None]

    def last_before(self, index: int) -> float | None:
        """The last known value before a column."""
        return next((value for value in reversed(self.values[:index]) if value is not None), None)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two samples: of the node agents, of Slurm's agent, of the rules."""

    scrape: float
    slurm: float
    rules: float

    def of(self, expression: str) -> float:
        """That of the series in an expression, by their names."""
        if "slurm_" in expression:
            return self.slurm
        return self.rules if "ALERTS" in expression or _RECORDED.search(expression) else self.scrape


_RECORDED = re.compile(r"\b\w+:\w+:\w+\b")


class History:
    """Asks one server for one period.

    Every expression has `{window}` where it looks back, so that a sample is seen until the next is
    due and not for longer: the five minutes that a server looks back by itself would hide a gap.
    """

    def __init__(
        self,
        api: PrometheusApi,
        period: Period,
        progress: Progress,
        *,
        intervals: Intervals,
        columns: int = MAX_COLUMNS,
    ) -> None:
        step = max(intervals.scrape, math.ceil(period.seconds / columns), 1.0)
        start = math.floor(period.start / step) * step
        self.api = api
        self.intervals = intervals
        self.grid = Grid(start, step, int((period.end - start) / step) + 1)
        self.progress = progress

    def lines(self, expression: str, what: str) -> list[Line]:
        """The series that an expression yields."""
        self.progress.step(what)
        interval = self.intervals.of(expression)
        asked = expression.replace("{window}", _duration(max(1.5 * interval, self.grid.step)))
        asked = asked.replace("{rate}", _duration(max(5 * interval, self.grid.step)))
        tracks = self.api.query_range(asked, self.grid.start, self.grid.end, self.grid.step)
        return [self._line(track) for track in tracks]

    def samples(self, selector: str, what: str) -> list[Track]:
        """Series as they were stored."""
        self.progress.step(what)
        return self.api.samples(selector, self.grid.start, self.grid.end)

    def _line(self, track: Track) -> Line:
        values: list[float | None] = [None] * self.grid.count
        for when, value in track.samples:
            index = round((when - self.grid.start) / self.grid.step)
            if 0 <= index < self.grid.count and math.isfinite(value):
                values[index] = value
        return Line(track.labels, values)


def measure(
    api: PrometheusApi, cluster: str, times: Sequence[float], back: float = 600.0
) -> Intervals:
    """The intervals on a cluster, by the time before the first of some times that has samples.

    Raises `SourceError` where no node agent was scraped at any of them.
    """
    chosen = f"cluster={quoted(cluster)}"
    scrape = _interval(api, f'up{{{chosen}, job="stagewatch"}}', times, back)
    slurm = _interval(api, f'slurm_source_success{{{chosen}, source="jobs"}}', times, back)
    rules = _interval(api, f"job:rl_ranks_live:count{{{chosen}}}", times, back)
    if scrape is None:
        scrape = _interval(api, f"up{{{chosen}}}", times, back)
    if scrape is None:
        around = ", ".join(iso(when) for when in times)
        raise SourceError(f"nothing of cluster {cluster!r} was scraped around {around}")
    return Intervals(scrape, slurm or max(scrape, 30.0), rules or max(scrape, 15.0))


def _interval(
    api: PrometheusApi, selector: str, times: Sequence[float], back: float
) -> float | None:
    for when in times:
        usual = [
            statistics.median(later - earlier for earlier, later in itertools.pairwise(stamps))
            for track in api.samples(selector, when - back, when)
            if len(stamps := [stamp for stamp, _ in track.samples]) > 2
        ]
        if usual:
            return max(0.1, round(statistics.median(usual), 1))
    return None


def _duration(seconds: float) -> str:
    return f"{math.ceil(seconds * 1000)}ms"


def quoted(value: str) -> str:
    """A label's value as PromQL writes it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
