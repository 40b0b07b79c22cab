"""The figures of both reports: propagation, anomaly and diagnosis of an experiment, and the time
line of an incident."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stagewatch.report.components import Component, in_order
from stagewatch.report.deviations import Finding
from stagewatch.report.diagnosis import MOMENTS, Milestones
from stagewatch.report.drawing import (
    COLOURS,
    LINE,
    ONE_COLUMN,
    TWO_COLUMNS,
    Drawing,
    Mark,
    TimeAxis,
    cell,
    fitted,
    row_labels,
    styled,
    text_width,
)
from stagewatch.report.events import ANY
from stagewatch.report.experiment import Experiment, Side, telling
from stagewatch.report.history import Values, column_runs
from stagewatch.report.periods import clock, number, span
from stagewatch.report.phases import PHASES, Phases
from stagewatch.report.recovery import Recovery

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Multiples of the distance at which a value begins to deviate: where each colour begins."""

HEAT = ("#e9eef3", "#fee391", "#fec44f", "#fe9929", "#d95f0e", "#8c2d04")
"""Colours of values in the baseline and from each level on: ever darker, so that grey will do."""

RUNS, STANDS, WRONG, WORSE = "#bfe3d6", "#e4e7eb", "#fec44f", "#fe9929"
"""A job that runs, one that does not, and signs that something is out of order."""

MAX_ROWS = 28
MAX_COLUMNS = 200
MAX_INCIDENT_ROWS = 14
LARGEST = 1e30
"""Larger values are drawn here: no axis can show them."""

RIGHT = 0.12
BELOW = 0.36
LEGEND = 0.24
"""Inches beside and below a plot; below are the words of the axis."""


def experiment_figures(experiment: Experiment) -> dict[str, Drawing]:
    """The three figures of each view, by the names that the page has for them."""
    full, controller = experiment.full, experiment.controller
    groups = [_group(experiment, full), _group(experiment, controller)]
    return {
        "propagation": propagation(experiment, full),
        "anomaly": anomaly(experiment, full),
        "diagnosis": diagnosis(groups),
        "propagation_controller": propagation(experiment, controller),
        "anomaly_controller": anomaly(experiment, controller),
        "diagnosis_controller": diagnosis(groups[1:], "diagnosis-controller"),
    }


def recovery_figures(recovery: Recovery) -> dict[str, Drawing]:
    """The time line of each incident that has one, by its name."""
    return {name: timeline(each, name) for _, each, name in recovery.shown()}


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    values: Values
    error: float | None = None
    origin: bool = False


@styled
def propagation(experiment: Experiment, side: Side) -> Drawing:
    """Figure 1: a row for each component, a column for each moment; hatched where nothing is known,
    coloured by how far the worst series was from its baseline."""
    rows = _rows(experiment, side) or [_Row("nothing was seen", [])]
    labels = [fitted(row.label, 1.6, bold=row.origin) for row in rows]
    left = max(text_width(label, bold=True) for label in labels) + 0.12
    width = TWO_COLUMNS - left - RIGHT
    axis = _axis(experiment, side.milestones, width)
    height = 0.155 * len(rows)
    name = "propagation" if side.view.name == "full" else "propagation-controller"
    title = "Propagation: distance of each component from its baseline"
    drawing = Drawing(name, title, TWO_COLUMNS, axis.top + height + BELOW + LEGEND)
    axes = drawing.axes(left, axis.top, width, height)
    row_labels(axes, labels)
    for at, (row, tick) in enumerate(zip(rows, axes.get_yticklabels(), strict=True)):
        tick.set_fontweight("bold" if row.origin else "normal")
        _cells(drawing, axes, experiment, row, at)
    axis.label(axes, "after the injection")
    over = axis.mark(drawing, left, axis.top, height)
    for at, row in enumerate(rows):
        if row.error is not None and axis.low <= row.error - experiment.fault.start <= axis.high:
            y = axis.top + (at + 0.5) * height / len(rows)
            _cross(over, row.error - experiment.fault.start, y)
    _legend(drawing, left)
    return drawing


def level(severity: float) -> str:
    """The colour of a severity."""
    return HEAT[sum(severity >= each for each in LEVELS)]


def _rows(experiment: Experiment, side: Side) -> list[_Row]:
    """A row for each component; of many, those that went wrong, and one for the rest of each
    group."""
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
    severities: dict[Component, list[Values]] = {}
    for finding in side.view.findings:
        if finding.steady:
            severities.setdefault(finding.component, []).append(finding.severities)
    return {component: _most(lines) for component, lines in severities.items()}


def _most(lines: Sequence[Values]) -> list[float | None]:
    return [
        max((value for value in column if value is not None), default=None)
        for column in zip(*lines, strict=True)
    ]


def _cells(drawing: Drawing, axes: Axes, experiment: Experiment, row: _Row, at: int) -> None:
    """Runs of columns of one colour as one rectangle each."""
    grid = experiment.grid
    size = math.ceil(grid.count / MAX_COLUMNS)
    runs: list[tuple[int, int, str, float]] = []
    for start in range(0, len(row.values), size):
        known = [value for value in row.values[start : start + size] if value is not None]
        colour = level(max(known)) if known else "gap"
        end = min(start + size, grid.count)
        if runs and runs[-1][2] == colour:
            runs[-1] = (runs[-1][0], end, colour, max([runs[-1][3], *known]))
        else:
            runs.append((start, end, colour, max(known, default=0.0)))
    for start, end, colour, most in runs:
        first, last = grid.time(start), min(grid.time(end), grid.end)
        left = first - experiment.fault.start
        what = "no data" if colour == "gap" else f"up to {most:.4g} times the limit"
        shape = cell(axes, left, at + 0.06, last - first, 0.88, colour)
        drawing.tip(shape, f"{row.label}, {clock(first)} to {clock(last)}: {what}")


def _cross(axes: Axes, x: float, y: float) -> None:
    for colour, width in (("white", 3.0), ("black", 1.4)):
        axes.plot([x], [y], marker="x", ms=5, mew=width, color=colour, zorder=5, clip_on=False)


def _legend(drawing: Drawing, left: float) -> None:
    """Along the bottom, from `left` where there is room."""
    words = ("in the baseline", *(f"≥ {each:g}×" for each in LEVELS), "no data", "first event")
    wide = sum(text_width(text) + 0.35 for text in words)
    x = min(left, TWO_COLUMNS - wide)
    axes = drawing.axes(0, drawing.height - LEGEND, TWO_COLUMNS, LEGEND)
    axes.set(xlim=(0, TWO_COLUMNS), ylim=(0, 1))
    axes.set_axis_off()
    for colour, text in zip((*HEAT, "gap", ""), words, strict=True):
        if colour:
            cell(axes, x, 0.3, 0.16, 0.42, colour)
        else:
            _cross(axes, x + 0.08, 0.5)
        axes.text(x + 0.21, 0.5, text, va="center_baseline")
        x += text_width(text) + 0.35


@styled
def anomaly(experiment: Experiment, side: Side) -> Drawing:
    """Figure 2: a panel for each telling series: the band is mean and two sigma of the baseline,
    the dotted line its median; gaps stay gaps."""
    chosen = telling(side)
    left, panel, plot = 0.78, 0.84, 0.62
    width = TWO_COLUMNS - left - RIGHT
    axis = _axis(experiment, side.milestones, width)
    height = panel * max(len(chosen), 1)
    name = "anomaly" if side.view.name == "full" else "anomaly-controller"
    title = "Anomalies: the first series to leave their baselines"
    drawing = Drawing(name, title, TWO_COLUMNS, axis.top + height + BELOW)
    for at in range(max(len(chosen), 1)):
        top = axis.top + at * panel
        axes = drawing.axes(left, top + panel - plot, width, plot)
        label = "no series with a baseline"
        if chosen:
            label = f"{chosen[at].component.label}: {chosen[at].title}"
            _series(drawing, axes, experiment, chosen[at])
        else:
            axes.set_yticks([])
        drawing.words(left, top + 0.13, fitted(label, width, bold=True), bold=True)
        axis.label(axes, "after the injection", last=at >= len(chosen) - 1)
    axis.mark(drawing, left, axis.top, height, under=True)
    return drawing


def _series(drawing: Drawing, axes: Axes, experiment: Experiment, finding: Finding) -> None:
    unit, base, grid = finding.signal.unit, finding.baseline, experiment.grid
    values = [None if value is None else _shown(value) for value in finding.values]
    edges = [value for value in values if value is not None]
    if base:
        edges += [_shown(base.low), _shown(base.high), _shown(base.median)]
    low, high = limits(edges)
    axes.set_ylim(low, high)
    if base:
        bottom, top = (min(max(_shown(edge), low), high) for edge in base.two_sigma)
        two_sigma = " to ".join(number(edge, unit) for edge in base.two_sigma)
        # A constant series has a band too: one that can be seen.
        thick = max(top - bottom, 0.015 * (high - low))
        band = cell(axes, -1e9, bottom, 2e9, thick, "#0072b2")
        band.set_alpha(0.18)
        tip = f"baseline: mean {number(base.mean, unit)}, two sigma {two_sigma}"
        drawing.tip(band, tip)
        axes.axhline(_shown(base.median), color=LINE, lw=0.8, ls=":")
    round_values = MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(low, high)
    ticks = [float(at) for at in round_values if low <= at <= high]
    axes.set_yticks(ticks, [number(at, unit) for at in ticks])
    for first, last in column_runs(values, gap=0):
        times = [grid.time(at) - experiment.fault.start for at in range(first, last + 1)]
        piece = [value for value in values[first : last + 1] if value is not None]
        alone = "." if first == last else ""
        axes.plot(times, piece, color=COLOURS["detect"], lw=1.1, marker=alone)


def _shown(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def limits(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: from zero, unless all values are so far from it that their differences
    would not show."""
    low, high = min(values), max(values)
    least = max(1e-9 * max(abs(low), abs(high)), 1 / LARGEST)
    if low > 0.5 * high > 0 and high - low > least:
        margin = 0.25 * (high - low)
        return low - margin, high + margin
    low = min(0.0, low)
    if high - low > least:
        return low, high + 0.05 * (high - low)
    return (low, 0.0) if low < -least else (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Bar:
    """A time in seconds from the injection; None where it was not seen."""

    what: str
    seconds: float | None
    colour: str


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one scenario and view; `looked` is how long the report looked, in seconds."""

    title: str
    bars: Sequence[Bar]
    looked: float


def _group(experiment: Experiment, side: Side) -> Group:
    titles = {"full": "Everything measured", "controller": "Controller and Slurm alone"}
    detected, localised = side.milestones.detected.time, side.milestones.localised.time
    bars = [
        Bar("detected", experiment.after(detected), "detect"),
        Bar("localised", experiment.after(localised), "localise"),
    ]
    return Group(titles[side.view.name], bars, experiment.run.end - experiment.fault.start)


@styled
def diagnosis(groups: Sequence[Group], name: str = "diagnosis") -> Drawing:
    """Figure 3: times to detect and localise; a hatched bar is how long the report looked in
    vain."""
    left, bar, head = 0.66, 0.19, 0.2
    width = ONE_COLUMN - left - RIGHT
    height = sum(head + bar * len(group.bars) for group in groups)
    title = "Diagnosis: time to detect and to localise"
    drawing = Drawing(name, title, ONE_COLUMN, height + BELOW + 0.04)
    axes = drawing.axes(left, 0.04, width, height)
    axes.set_ylim(height, 0)
    bars = [(each, group.looked) for group in groups for each in group.bars]
    longest = max([1.0, *(looked if one.seconds is None else one.seconds for one, looked in bars)])
    room = 0.1 + max((text_width(_told(one, looked)) for one, looked in bars), default=0.0)
    axes.set_xlim(0, longest * width / (width - room))
    y = 0.0
    ticks: list[tuple[float, str]] = []
    for group in groups:
        drawing.words(0.06, y + 0.15, fitted(group.title, ONE_COLUMN - 0.12, bold=True), bold=True)
        y += head
        for one in group.bars:
            end = group.looked if one.seconds is None else max(one.seconds, 0.0)
            thick = bar - 0.05
            colour = "gap" if one.seconds is None else COLOURS[one.colour]
            shape = cell(axes, 0, y + 0.025, max(end, 0.004 * longest), thick, colour)
            told = _told(one, group.looked)
            drawing.tip(shape, f"{one.what}: {told}")
            axes.text(end + 0.01 * axes.get_xlim()[1], y + bar / 2, told, va="center_baseline")
            ticks.append((y + bar / 2, fitted(one.what, left - 0.1)))
            y += bar
    axes.set_yticks([at for at, _ in ticks], [words for _, words in ticks])
    axes.tick_params(axis="y", length=0, pad=3)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.set_xlabel("s after the injection", labelpad=2)
    axes.spines["left"].set_visible(False)
    return drawing


def _told(bar: Bar, looked: float) -> str:
    return f"not seen in {span(looked)}" if bar.seconds is None else span(bar.seconds)


def _axis(experiment: Experiment, seen: Milestones, width: float) -> TimeAxis:
    start, grid = experiment.fault.start, experiment.grid
    marks = [
        Mark(mark.time - start, words, colour)
        for name, words, colour in MOMENTS
        if name != "last_error" and (mark := getattr(seen, name)).time is not None
    ]
    return TimeAxis(grid.start - start, grid.end - start, width, marks)


_Span = tuple[float, float, str, str]
"""Start and end in Unix seconds, colour, and the text under the pointer."""


@styled
def timeline(phases: Phases, name: str) -> Drawing:
    """One incident: signs and jobs as rows; hatched where it is not known whether a job ran."""
    rows = [*_sign_rows(phases).items(), *_job_rows(phases).items()][:MAX_INCIDENT_ROWS]
    labels = [fitted(label, 1.6) for label, _ in rows]
    left = max(text_width(label) for label in labels) + 0.12
    width = TWO_COLUMNS - left - RIGHT
    start, end = _window(phases)
    marks = [
        Mark(after, f"{words} {span(after)}" if after else words, colour)
        for name, words, colour in PHASES
        if (when := getattr(phases, name)) is not None
        for after in [when - phases.began]
    ]
    axis = TimeAxis(start - phases.began, end - phases.began, width, marks)
    height = 0.18 * len(rows)
    drawing = Drawing(name, "Time line of the incident", TWO_COLUMNS, axis.top + height + BELOW)
    axes = drawing.axes(left, axis.top, width, height)
    row_labels(axes, labels)
    for at, (_, spans) in enumerate(rows):
        for begin, until, colour, tip in spans:
            first, last = max(begin, start), min(until, end)
            if last >= first:
                wide = max(last - first, 0.003 * (end - start))
                shape = cell(axes, first - phases.began, at + 0.12, wide, 0.76, colour)
                drawing.tip(shape, tip)
    axis.label(axes, f"after {clock(phases.began)} UTC")
    axis.mark(drawing, left, axis.top, height)
    return drawing


def _window(phases: Phases) -> tuple[float, float]:
    """The time to show: from shortly before the beginning to shortly after the last phase or
    sign."""
    times = [when for name, _, _ in PHASES if (when := getattr(phases, name)) is not None]
    ends = [sign.end for sign in phases.incident.signs]
    restored = [job.restored for job in phases.jobs if job.restored is not None]
    last = min(max([*times, *ends, *restored]), phases.grid.end)
    margin = max(0.06 * (last - phases.began), 5 * phases.resolution)
    return max(phases.began - margin, phases.grid.start), min(last + margin, phases.grid.end)


def _sign_rows(phases: Phases) -> dict[str, list[_Span]]:
    names = {"silent": "agent silent", "rank_gone": "rank gone", "fault": "fault marked"}
    colours = {"fault": COLOURS["inject"], "stall": WORSE}
    rows: dict[str, list[_Span]] = {}
    for sign in phases.incident.signs:
        label = f"{names.get(sign.kind, sign.kind)}, {sign.node or f'job {sign.job_id}'}"
        tip = f"{label}: {clock(sign.start)} to {clock(sign.end)} {sign.text}"
        colour = colours.get(sign.kind, WRONG)
        rows.setdefault(label, []).append((sign.start, sign.end, colour, tip))
    return rows


def _job_rows(phases: Phases) -> dict[str, list[_Span]]:
    grid = phases.grid
    rows: dict[str, list[_Span]] = {}
    hit = {job.job_id for job in phases.hit}
    states = ((1, RUNS, "runs"), (0, STANDS, "does not run"), (None, "gap", "unknown"))
    for job_id, values in phases.running.items():
        if job_id not in hit and not any(values):
            continue
        spans = rows[f"job {job_id}"] = []
        for state, colour, words in states:
            marked = [0.0 if value == state else None for value in values]
            for first, last in column_runs(marked, gap=0):
                start, end = grid.time(first), grid.time(last + 1)
                spans.append((start, end, colour, f"job {job_id}: {words}, {clock(start)}"))
    return rows
