"""The figures of an experiment: how far it spread (propagation), and by which series (anomaly)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from stagewatch.report import drawing as draw
from stagewatch.report.components import Component, in_order
from stagewatch.report.deviations import Finding
from stagewatch.report.diagnosis import MOMENTS
from stagewatch.report.events import ANY
from stagewatch.report.experiment import Experiment
from stagewatch.report.history import Grid, Values
from stagewatch.report.periods import number, span

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Multiples of the distance at which a value begins to deviate: where each colour begins."""

HEAT = ("#e9eef3", "#fee391", "#fec44f", "#fe9929", "#d95f0e", "#8c2d04")
"""Colours of values in the baseline and from each level on: ever darker, so that grey will do."""

MAX_ROWS = 28
MAX_CELLS = 200

BELOW = 0.4
"""Inches below a plot for the words of its axis."""

_MIDDLE = re.compile(r"(?<!\S)(/[^/\s]+)(?:/[^/\s]+)+(/[^/\s]+/[^/\s]+)$")

_Span = tuple[float, float, str]
"""Start and end in Unix seconds, and colour."""


def experiment_figures(experiment: Experiment) -> dict[str, draw.Drawing]:
    """The figures that have something to show, by name."""
    figures: dict[str, draw.Drawing] = {}
    if experiment.watched:
        figures["propagation"] = propagation(experiment)
    if experiment.telling():
        figures["anomaly"] = anomaly(experiment)
    return figures


@draw.styled
def propagation(experiment: Experiment) -> draw.Drawing:
    """A row for each component, a column for each moment; hatched where nothing is known, coloured
    by how far the worst series was from its baseline; the first suspect is bold."""
    worst = _worst(experiment.view.findings)
    errors = {event.component: event.time for event in reversed(experiment.view.events)}
    rows = _rows(experiment, {*worst, *errors})
    marks = _marks(experiment)
    height = draw.key_height(marks) + 0.155 * len(rows) + BELOW + 0.25
    title = "Propagation: distance of each component from its baseline"
    drawing = draw.Drawing("propagation", title, height)
    axes = drawing.figure.subplots()
    draw.row_labels(axes, [_short_path(row.label) for row in rows])
    grid, zero = experiment.grid, experiment.fault.start
    for at, (row, tick) in enumerate(zip(rows, axes.get_yticklabels(), strict=True)):
        first = row == experiment.suspects[0].component if experiment.suspects else False
        tick.set_fontweight("bold" if first else "normal")
        for start, end, colour in _cells(grid, worst.get(row, [None] * grid.count)):
            draw.bar(axes, at, start - zero, end - start, colour)
        if row in errors:
            for colour, stroke in (("white", 3.0), ("black", 1.4)):
                when = errors[row] - zero
                axes.plot([when], [at + 0.5], "x", ms=5, mew=stroke, color=colour, zorder=5)
    _time(drawing, [axes], experiment, marks)
    words = ("in the baseline", *(f"≥ {each:g}×" for each in LEVELS), "no data")
    legend: list[Artist] = [
        draw.patch(*each) for each in zip(words, (*HEAT, draw.GAP), strict=True)
    ]
    if errors.keys() & set(rows):
        legend.append(Line2D([], [], marker="x", color="black", ls="", label="first event"))
    drawing.figure.legend(
        handles=legend, loc="outside lower center", ncols=8, frameon=False, handlelength=1.2
    )
    return drawing


def _rows(experiment: Experiment, seen: Iterable[Component]) -> list[Component]:
    """The components that went wrong or were judged; of many, the first suspects."""
    ranked = [suspect.component for suspect in experiment.suspects]
    shown = [each for each in seen if each.kind != "slurm" and each.name != ANY]
    others = [each for each in in_order(shown) if each not in ranked]
    return in_order([*(each for each in ranked if each in shown), *others][:MAX_ROWS])


def _worst(findings: Iterable[Finding]) -> dict[Component, list[float | None]]:
    """The largest severity of each component's steady series, by column."""
    worst: dict[Component, list[float | None]] = {}
    for finding in findings:
        if finding.steady:
            lines = (worst.get(finding.component, finding.severities), finding.severities)
            worst[finding.component] = [_most(column) for column in zip(*lines, strict=True)]
    return worst


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _cells(grid: Grid, values: Values) -> Iterator[_Span]:
    """Runs of columns of one colour; of many columns, several are one with their worst value."""
    size = math.ceil(grid.count / MAX_CELLS)
    cells = [_most(values[start : start + size]) for start in range(0, len(values), size)]
    for colour, run in itertools.groupby(range(len(cells)), lambda at: _heat(cells[at])):
        columns = list(run)
        start, end = grid.time(columns[0] * size), grid.time((columns[-1] + 1) * size)
        yield start, min(end, grid.end), colour


def _heat(severity: float | None) -> str:
    return draw.GAP if severity is None else HEAT[sum(severity >= each for each in LEVELS)]


def _short_path(label: str) -> str:
    """A name without the middle of its path: `node-a /mnt/…/checkpoints/700`."""
    return _MIDDLE.sub(r"\1/…\2", label)


@draw.styled
def anomaly(experiment: Experiment) -> draw.Drawing:
    """A panel for each telling series: the band is mean and two sigma of the baseline, the dotted
    line its median; gaps stay gaps."""
    chosen = experiment.telling()
    marks = _marks(experiment)
    height = draw.key_height(marks) + 0.84 * len(chosen) + BELOW
    title = "Anomalies: the first series to leave their baselines"
    drawing = draw.Drawing("anomaly", title, height)
    panels = drawing.figure.subplots(len(chosen), sharex=True, squeeze=False)[:, 0].tolist()
    for axes, finding in zip(panels, chosen, strict=True):
        label = _short_path(finding.component.label)
        axes.set_title(draw.fitted(f"{label}: {finding.title}"), pad=4)
        _series(axes, experiment, finding)
    _time(drawing, panels, experiment, marks)
    return drawing


def _series(axes: Axes, experiment: Experiment, finding: Finding) -> None:
    unit, base, grid = finding.signal.unit, finding.baseline, experiment.grid
    values = [math.nan if value is None else value for value in finding.values]
    if base:
        bottom, top = base.two_sigma
        axes.axhspan(bottom, top, color="#0072b2", alpha=0.18, lw=1)
        axes.axhline(base.median, color=draw.LINE, lw=0.8, ls=":")
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(lambda value, _: number(value, unit))
    times = [grid.time(at) - experiment.fault.start for at in range(grid.count)]
    axes.plot(times, values, color=draw.COLOURS["detect"], lw=1.1, marker=".", ms=1.5)


def _marks(experiment: Experiment) -> list[draw.Mark]:
    """The moments that were seen, but for the last error, with their times after the injection."""
    marks = []
    for name, words, colour in MOMENTS:
        after = experiment.after(experiment.milestones[name].time)
        if after is not None and name != "last_error":
            marks.append(draw.Mark(after, f"{words} {span(after)}" if after else words, colour))
    return marks


def _time(
    drawing: draw.Drawing,
    panels: Sequence[Axes],
    experiment: Experiment,
    marks: Sequence[draw.Mark],
) -> None:
    start, grid = experiment.fault.start, experiment.grid
    draw.time_axis(panels, grid.start - start, grid.end - start)
    draw.mark_moments(drawing, panels, marks)
