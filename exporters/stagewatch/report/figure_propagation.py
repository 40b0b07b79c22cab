"""Figure 1: how far each component was from its baseline, over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.axes import Scale, marks, time_axis
from stagewatch.report.components import Component, in_order
from stagewatch.report.events import ANY
from stagewatch.report.experiment import Experiment, Side
from stagewatch.report.periods import clock
from stagewatch.report.svg import Figure, fitted

WIDTH = 860.0
LEFT = 168.0
RIGHT = 14.0
TOP = 77.0
ROW = 19.0
MAX_ROWS = 28
MAX_COLUMNS = 160
LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Multiples of the distance at which a value begins to deviate: where each colour begins."""


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    values: Sequence[float | None]
    error: float | None = None
    origin: bool = False


def propagation(experiment: Experiment, side: Side) -> Figure:
    """A row for each component, a column for each moment; hatched where nothing is known."""
    rows = _rows(experiment, side)
    height = TOP + ROW * max(len(rows), 1) + 84
    name = "propagation" if side.view.name == "full" else "propagation-controller"
    title = "Propagation: distance of each component from its baseline"
    figure = Figure(name, title, WIDTH, height)
    grid = experiment.grid
    scale = Scale(grid.start, grid.end, LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * max(len(rows), 1)
    if not rows:
        figure.text(LEFT, TOP + 13, "nothing was seen of any component", muted=True)
    for at, row in enumerate(rows):
        y = TOP + at * ROW
        label = fitted(row.label, LEFT - 24)
        figure.text(LEFT - 8, y + 14, label, anchor="end", bold=row.origin)
        _cells(figure, experiment, row, y, scale)
    time_axis(figure, scale, experiment.fault.start, bottom, bottom)
    marks(figure, scale, side.milestones, TOP, bottom)
    _legend(figure, bottom + 58)
    return figure


def level(severity: float) -> str:
    """The colour of a severity."""
    return ("well", "heat1", "heat2", "heat3", "heat4", "heat5")[
        sum(severity >= each for each in LEVELS)
    ]


def _rows(experiment: Experiment, side: Side) -> list[_Row]:
    """One for each component; of many, those that went wrong, and the rest as one of each group."""
    worst = _worst(side)
    errors = {event.component: event.time for event in reversed(side.view.events)}
    ranked = [suspect.component for suspect in side.suspects]
    shown = set(worst) | {each for each in errors if each.kind != "slurm" and each.name != ANY}
    kept = shown if len(shown) <= MAX_ROWS else set(ranked[: MAX_ROWS - 6])
    rows = []
    if side.view.name != "full":
        running = [None if value is None else 0.0 for value in experiment.job_running]
        rows.append(_Row("Slurm: job runs", running, errors.get(Component("slurm", "", "Slurm"))))
    none: list[float | None] = [None] * experiment.grid.count
    rows += [
        _Row(each.label, worst.get(each, none), errors.get(each), each in ranked[:1])
        for each in in_order(kept)
    ]
    groups: dict[str, list[Component]] = {}
    for each in in_order(shown - kept):
        groups.setdefault(each.group, []).append(each)
    rows += [
        _Row(f"{len(members)} other {group}s", _most([worst.get(each, none) for each in members]))
        for group, members in groups.items()
    ]
    return rows


def _worst(side: Side) -> dict[Component, list[float | None]]:
    """The largest severity of each component's steady series, by column."""
    found: dict[Component, list[Sequence[float | None]]] = {}
    for finding in side.view.findings:
        if finding.steady:
            found.setdefault(finding.component, []).append(finding.severities)
    return {component: _most(lines) for component, lines in found.items()}


def _most(lines: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [
        max((value for value in column if value is not None), default=None)
        for column in zip(*lines, strict=True)
    ]


def _cells(figure: Figure, experiment: Experiment, row: _Row, y: float, scale: Scale) -> None:
    """Runs of columns of one colour as one rectangle each."""
    grid = experiment.grid
    size = math.ceil(grid.count / MAX_COLUMNS)
    runs: list[tuple[int, int, str, float]] = []
    for start in range(0, grid.count, size):
        known = [value for value in row.values[start : start + size] if value is not None]
        colour = level(max(known)) if known else "gap"
        end = min(start + size, grid.count)
        if runs and runs[-1][2] == colour:
            runs[-1] = (runs[-1][0], end, colour, max([runs[-1][3], *known]))
        else:
            runs.append((start, end, colour, max(known, default=0.0)))
    for start, end, colour, most in runs:
        left = scale(grid.time(start))
        right = min(scale(grid.time(end)), scale.end)
        what = "no data" if colour == "gap" else f"up to {most:.1f} times the limit"
        tip = f"{row.label}, {clock(grid.time(start))} to {clock(grid.time(end))}: {what}"
        figure.rect(left, y + 1, right - left, ROW - 2, colour, tip)
    if row.error is not None and scale.low <= row.error <= scale.high:
        x = scale(row.error)
        figure.path([(x - 4, y + 5), (x + 4, y + ROW - 5)], "ink", width=2)
        figure.path([(x - 4, y + ROW - 5), (x + 4, y + 5)], "ink", width=2)


def _legend(figure: Figure, y: float) -> None:
    x = LEFT
    words = ("in the baseline", *(f"≥ {each:g}×" for each in LEVELS), "no data")
    colours = ("well", "heat1", "heat2", "heat3", "heat4", "heat5", "gap")
    for colour, text in zip(colours, words, strict=True):
        figure.rect(x, y - 10, 14, 12, colour)
        figure.text(x + 19, y, text, size=11, muted=True)
        x += 34 + len(text) * 6.2
    figure.path([(x, y - 8), (x + 8, y)], "ink", width=2)
    figure.path([(x, y), (x + 8, y - 8)], "ink", width=2)
    figure.text(x + 14, y, "first event", size=11, muted=True)
