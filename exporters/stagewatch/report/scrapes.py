"""How much of a period was seen at all: scrapes that succeeded, and time that nobody looked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.history import Grid, History, quoted

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The scrapes of one job of a cluster.  `succeeded` and `attempted` are counts."""

    job: str
    targets: int
    succeeded: float
    attempted: float
    seen: float
    """Share of the period in which anything of it was scraped: the rest is unknown."""

    @property
    def success(self) -> float | None:
        """Share of the attempted scrapes that succeeded."""
        return self.succeeded / self.attempted if self.attempted else None

    @property
    def coverage(self) -> float | None:
        """Share of the data that there could be: of the time seen, the scrapes that succeeded."""
        return None if self.success is None else self.success * self.seen


def scrapes_of(history: History, cluster: str) -> list[Scrapes]:
    """By scrape job, those with most targets first."""
    up = f"up{{cluster={quoted(cluster)}}}"
    present = history.lines(f"count by (job) (last_over_time({up}[{{window}}]))", "scrapes")
    succeeded = _sums(history, f"sum by (job) (sum_over_time({up}[{{span}}]))", "successes")
    attempted = _sums(history, f"sum by (job) (count_over_time({up}[{{span}}]))", "attempts")
    found = []
    for line in present:
        job = line.labels.get("job", "")
        known = [value for value in line.values if value is not None]
        found.append(
            Scrapes(
                job=job,
                targets=round(max(known)),
                succeeded=succeeded.get(job, 0.0),
                attempted=attempted.get(job, 0.0),
                seen=len(known) / history.grid.count,
            )
        )
    return sorted(found, key=lambda each: (-each.targets, each.job))


def unseen_seconds(history: History, cluster: str) -> float:
    """Time in which no agent of the cluster was scraped, so that nothing is known."""
    chosen = f'up{{cluster={quoted(cluster)}, job=~"stagewatch.*"}}'
    lines = history.lines(f"count (last_over_time({chosen}[{{window}}]))", "blind time")
    values: Sequence[float | None] = lines[0].values if lines else [None] * history.grid.count
    return sum(value is None for value in values) * history.grid.step


def total_increase(history: History, selector: str, by: str, what: str) -> dict[str, float]:
    """By a label, how much counters grew, as the server extrapolates it."""
    found: dict[str, float] = {}
    for span, times in _spans(history.grid):
        history.progress.step(what)
        query = f"sum by ({by}) (increase({selector}[{span}]))"
        for at in times:
            for each in history.api.query(query, at):
                label = each.labels.get(by, "")
                found[label] = found.get(label, 0.0) + each.value
    return found


def _sums(history: History, query: str, what: str) -> dict[str, float]:
    """By job, a sum over the whole period, asked day by day."""
    found: dict[str, float] = {}
    for span, times in _spans(history.grid):
        history.progress.step(what)
        for at in times:
            for each in history.api.query(query.replace("{span}", span), at):
                job = each.labels.get("job", "")
                found[job] = found.get(job, 0.0) + each.value
    return found


def _spans(grid: Grid) -> list[tuple[str, list[float]]]:
    """Whole days and what is left, each with the ends of the spans.

    A span ends just before the next begins, since servers differ in whether both ends count.
    """
    length = grid.end - grid.start
    days = int(length // DAY)
    rest = length - days * DAY
    found = []
    if days:
        times = [grid.start + (at + 1) * DAY for at in range(days)]
        found.append((f"{int(DAY * 1000) - 1}ms", times))
    if rest > 0:
        found.append((f"{max(1, int(rest * 1000) - 1)}ms", [grid.end]))
    return found
