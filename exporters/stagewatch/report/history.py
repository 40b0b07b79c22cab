"""Asks a server for series over a period, on one grid of times; gaps in the data stay gaps."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.core.errors import SourceError
from stagewatch.prometheus.api import PrometheusApi, Track
from stagewatch.prometheus.selectors import Wanted, select
from stagewatch.report.periods import Period, iso

MAX_COLUMNS = 1500
"""The most times in a grid; a longer period has larger steps."""

LARGEST = 1e100
"""Larger values count as not seen, since their squares are no finite numbers."""

Labels = Mapping[str, Wanted]
"""Labels of a selector, as `select` takes them."""

Values = Sequence[float | None]
"""Values on a grid of times; None where there was no sample."""


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
        """The time of a column."""
        return self.start + index * self.step

    def index(self, when: float) -> int:
        """The first column at or after a time; it may lie outside of the grid."""
        return math.ceil((when - self.start) / self.step - 1e-6)


@dataclass(frozen=True, slots=True)
class Line:
    """A series on a grid."""

    labels: Mapping[str, str]
    values: list[float | None]

    def known(self) -> list[tuple[int, float]]:
        """The columns with a value, and the values."""
        return [(at, value) for at, value in enumerate(self.values) if value is not None]

    def rises(self, before: float | None = None) -> list[tuple[int, float]]:
        """The columns whose value is larger than the value before, and the values."""
        rises = []
        for at, value in self.known():
            if before is not None and value > before:
                rises.append((at, value))
            before = value
        return rises


@dataclass(frozen=True, slots=True)
class Intervals:
    """The seconds between two samples of the node agents, of the Slurm agent, and of the rules."""

    scrape: float
    slurm: float
    rules: float

    def of(self, metric: str) -> float:
        """The interval of a metric, by its name; the name of a recording rule has colons."""
        if "slurm_" in metric:
            return self.slurm
        return self.rules if metric == "ALERTS" or ":" in metric else self.scrape


class History:
    """Asks one server for one period.

    A sample counts until the next one is due, and no longer: the five minutes for which a server
    looks back by default would hide a gap.
    """

    def __init__(
        self,
        api: PrometheusApi,
        period: Period,
        *,
        intervals: Intervals,
        columns: int = MAX_COLUMNS,
    ) -> None:
        step = max(intervals.scrape, math.ceil(period.seconds / columns), 1.0)
        start = math.floor(period.start / step) * step
        self.api = api
        self.period = period
        self.intervals = intervals
        self.grid = Grid(start, step, int((period.end - start) / step) + 1)

    def of(self, period: Period, columns: int = MAX_COLUMNS) -> History:
        """The same server, asked for another period."""
        return History(self.api, period, intervals=self.intervals, columns=columns)

    def last(self, metric: str, labels: Labels) -> str:
        """PromQL for the latest sample of each series, as long as it counts."""
        return self.over("last", metric, labels)

    def over(self, how: str, metric: str, labels: Labels) -> str:
        """PromQL for the `last`, the largest (`max`) or another aggregate of recent samples."""
        return f"{how}_over_time({select(metric, **labels)}[{self._window(metric, 1.5)}])"

    def rate(self, metric: str, labels: Labels) -> str:
        """PromQL for a rate.  It looks back further than a sample counts, but has no value in a
        gap."""
        series = f"{select(metric, **labels)}[{self._window(metric, 5)}]"
        return f"rate({series}) and {self.last(metric, labels)}"

    def most(self, metric: str, labels: Labels, by: str, how: str = "max") -> list[Line]:
        """The samples that count, aggregated by some labels to the largest (or by `how`)."""
        by = f" by ({by})" if by else ""
        return self.lines(f"{how}{by} ({self.last(metric, labels)})")

    def lines(self, expression: str) -> list[Line]:
        """The series that an expression yields."""
        tracks = self.api.query_range(expression, self.grid.start, self.grid.end, self.grid.step)
        return [self._line(track) for track in tracks]

    def samples(self, selector: str) -> list[Track]:
        """The series as the server stores them."""
        return self.api.samples(selector, self.grid.start, self.grid.end)

    def growth(self, counter: str, labels: Labels) -> float | None:
        """The growth of counters over the whole period; None if there are none."""
        window = milliseconds(max(0.001, self.grid.end - self.grid.start - 0.001))
        increase = f"sum (increase({select(counter, **labels)}[{window}]))"
        return next((each.value for each in self.api.query(increase, self.grid.end)), None)

    def _window(self, metric: str, intervals: float) -> str:
        return milliseconds(max(intervals * self.intervals.of(metric), self.grid.step))

    def _line(self, track: Track) -> Line:
        values: list[float | None] = [None] * self.grid.count
        for when, value in track.samples:
            index = round((when - self.grid.start) / self.grid.step)
            if 0 <= index < self.grid.count and abs(value) < LARGEST:
                values[index] = value
        return Line(track.labels, values)


def by_job(lines: Iterable[Line]) -> dict[str, Line]:
    """The line of each job, by its id."""
    return {line.labels.get("job_id", ""): line for line in lines}


def measure(
    api: PrometheusApi, cluster: str, times: Sequence[float], back: float = 600.0
) -> Intervals:
    """Measure the intervals of a cluster, just before the first of these times that has samples.

    Raises `SourceError` if nothing was scraped at any of them.
    """

    def interval(metric: str, **labels: str) -> float | None:
        selector = select(metric, cluster=cluster, **labels)
        for when in times:
            tracks = api.samples(selector, when - back, when)
            usual = [
                usual_gap([stamp for stamp, _ in track.samples])
                for track in tracks
                if len(track.samples) > 2
            ]
            if usual:
                return max(0.1, round(statistics.median(usual), 1))
        return None

    scrape = interval("up", job="stagewatch") or interval("up")
    if scrape is None:
        around = ", ".join(iso(when) for when in times)
        raise SourceError(f"nothing of cluster {cluster!r} was scraped around {around}")
    slurm = interval("slurm_source_success", source="jobs")
    rules = interval("job:rl_ranks_live:count")
    return Intervals(scrape, slurm or max(scrape, 30.0), rules or max(scrape, 15.0))


def milliseconds(seconds: float) -> str:
    """A duration as PromQL writes it."""
    return f"{math.ceil(round(seconds * 1000, 3))}ms"


def usual_gap(times: Sequence[float]) -> float:
    """The median distance of times; a minute if there is only one."""
    if len(times) < 2:
        return 60.0
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))


def runs(times: Sequence[float], gap: float | None = None) -> list[tuple[float, float]]:
    """Runs of times without a hole; a hole is longer than `gap` or 2.5 times the usual distance."""
    limit = 2.5 * usual_gap(times) if gap is None else gap
    spans: list[tuple[float, float]] = []
    for when in times:
        if spans and when - spans[-1][1] <= limit:
            spans[-1] = (spans[-1][0], when)
        else:
            spans.append((when, when))
    return spans


def column_runs(values: Values, gap: int = 2) -> list[tuple[int, int]]:
    """First and last columns of runs of known values; up to `gap` unknown values do not end a
    run."""
    columns = [at for at, value in enumerate(values) if value is not None]
    return [(int(first), int(last)) for first, last in runs(columns, gap + 1)]
