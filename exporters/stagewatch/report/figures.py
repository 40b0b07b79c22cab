"""The figures of the reports: propagation, anomaly and diagnosis of an experiment, the time line of
an incident, and where the hours of GPUs went."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator

from stagewatch.report.components import Component, in_order
from stagewatch.report.deviations import Finding
from stagewatch.report.diagnosis import MOMENTS, Milestones
from stagewatch.report.drawing import (
    COLOURS,
    LINE,
    MAX_TEXT,
    NEAR,
    ONE_COLUMN,
    TWO_COLUMNS,
    UNBROKEN,
    Drawing,
    Mark,
    cell,
    fitted,
    joined,
    key_height,
    row_labels,
    styled,
    time_axis,
)
from stagewatch.report.events import ANY
from stagewatch.report.experiment import Experiment, Side, telling
from stagewatch.report.goodput import Goodput
from stagewatch.report.history import Values, column_runs
from stagewatch.report.ledger import GROUPS
from stagewatch.report.periods import clock, date, number, span
from stagewatch.report.phases import PHASES, Phases
from stagewatch.report.recovery import Recovery

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Multiples of the distance at which a value begins to deviate: where each colour begins."""

HEAT = ("#e9eef3", "#fee391", "#fec44f", "#fe9929", "#d95f0e", "#8c2d04")
"""Colours of values in the baseline and from each level on: ever darker, so that grey will do."""

RUNS, STANDS, WRONG, STALLED = "#bfe3d6", "#c9ced6", "#f0e442", "#e69f00"
"""A job that runs, one that does not, signs that something is out of order, and a stalled job."""

MAX_ROWS = 28
MAX_COLUMNS = 200
MAX_INCIDENT_ROWS = 14
LARGEST = 1e30
"""Larger values are drawn here: no axis can show them."""

WIDTHS = (TWO_COLUMNS, ONE_COLUMN)
"""Both widths in inches, the page's first."""

NARROW_TEXT = 26
"""Characters of a name that a figure of one column shows."""

LEAST_SHARE = {TWO_COLUMNS: 0.012, ONE_COLUMN: 0.03}
"""Share of an axis of time, by the width: what lasts no longer is drawn this wide, so that it shows
beside the line of a moment."""

_MIDDLE = re.compile(r"(?<!\S)(/[^/\s]+)(?:/[^/\s]+)+(/[^/\s]+/[^/\s]+)$")

BELOW = 0.4
"""Inches below a plot for the words of its axis."""


def experiment_figures(experiment: Experiment) -> dict[str, list[Drawing]]:
    """The figures that have something to show, by their names; each in both widths."""
    full, controller = experiment.full, experiment.controller
    watched = [full, *([controller] if controller.watched else [])]
    groups = [_group(experiment, each) for each in watched]
    figures: dict[str, list[Drawing]] = {}
    for width in WIDTHS:
        drawn = [
            *(propagation(experiment, each, width) for each in (full, controller) if each.watched),
            *(anomaly(experiment, each, width) for each in (full, controller) if telling(each)),
            diagnosis(groups, width=width),
        ]
        for each in drawn:
            figures.setdefault(each.name.removesuffix("-column"), []).append(each)
    return figures


def recovery_figures(recovery: Recovery) -> dict[str, list[Drawing]]:
    """The time line of each incident that has one, by its name, in both widths."""
    return {
        name: [timeline(each, name, width) for width in WIDTHS]
        for _, each, name in recovery.shown()
    }


def goodput_figures(goodput: Goodput) -> dict[str, list[Drawing]]:
    """Where the hours went, in both widths."""
    return {"hours": [hours(goodput, width) for width in WIDTHS]}


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    values: Values
    error: float | None = None
    origin: bool = False


def _name(name: str, side: Side) -> str:
    return name if side.view.name == "full" else f"{name}-{side.view.name}"


def _most_text(width: float) -> int:
    return MAX_TEXT if width == TWO_COLUMNS else NARROW_TEXT


@styled
def propagation(experiment: Experiment, side: Side, width: float = TWO_COLUMNS) -> Drawing:
    """Figure 1: a row for each component, a column for each moment; hatched where nothing is known,
    coloured by how far the worst series was from its baseline."""
    rows = _rows(experiment, side)
    title = "Propagation: distance of each component from its baseline"
    marks = _marks(experiment, side.milestones, width)
    legend_height = 0.25 if width == TWO_COLUMNS else 0.6
    height = key_height(marks, width) + 0.155 * len(rows) + BELOW + legend_height
    drawing = Drawing(_name("propagation", side), title, width, height)
    axes = drawing.figure.subplots()
    row_labels(axes, [fitted(_short_path(row.label, width), _most_text(width)) for row in rows])
    for at, (row, tick) in enumerate(zip(rows, axes.get_yticklabels(), strict=True)):
        tick.set_fontweight("bold" if row.origin else "normal")
        for start, end, colour in _cells(experiment, row.values):
            cell(axes, start, at + 0.06, end - start, 0.88, colour)
        if row.error is not None:
            when = row.error - experiment.fault.start
            for colour, stroke in (("white", 3.0), ("black", 1.4)):
                axes.plot([when], [at + 0.5], "x", ms=5, mew=stroke, color=colour, zorder=5)
    _time(drawing, experiment, [axes], marks)
    words = ("in the baseline", *(f"≥ {each:g}×" for each in LEVELS))
    legend: list[Artist] = [
        Patch(color=colour, label=text) for colour, text in zip(HEAT, words, strict=True)
    ]
    legend.append(_patch("no data", "gap"))
    if any(row.error is not None for row in rows):
        legend.append(Line2D([], [], marker="x", color="black", ls="", label="first event"))
    drawing.legend(legend, 8 if width == TWO_COLUMNS else 3)
    return drawing


def level(severity: float) -> str:
    """The colour of a severity."""
    return HEAT[sum(severity >= each for each in LEVELS)]


def _short_path(label: str, width: float) -> str:
    """A name without the middle of its path, `node-a /mnt/…/checkpoints/700`, or in one column
    without all but its end; tables have all of it."""
    return _MIDDLE.sub(r"\1/…\2" if width == TWO_COLUMNS else r"…\2", label)


def _rows(experiment: Experiment, side: Side) -> list[_Row]:
    """A row for each component that went wrong or was judged; of many, the first suspects."""
    worst = _worst(side)
    errors = {event.component: event.time for event in reversed(side.view.events)}
    ranked = [suspect.component for suspect in side.suspects]
    shown = set(worst) | {each for each in errors if each.kind != "slurm" and each.name != ANY}
    others = [each for each in in_order(shown) if each not in ranked]
    kept = [*(each for each in ranked if each in shown), *others][:MAX_ROWS]
    rows = []
    if side.view.name != "full":
        running = [None if value is None else 0.0 for value in experiment.job_running]
        rows.append(_Row("Slurm: job runs", running, errors.get(Component("slurm", "", "Slurm"))))
    none: list[float | None] = [None] * experiment.grid.count
    return rows + [
        _Row(each.label, worst.get(each, none), errors.get(each), each in ranked[:1])
        for each in in_order(kept)
    ]


def _worst(side: Side) -> dict[Component, list[float | None]]:
    """The largest severity of each component's steady series, by column."""
    severities: dict[Component, list[Values]] = {}
    for finding in side.view.findings:
        if finding.counts:
            severities.setdefault(finding.component, []).append(finding.severities)
    return {component: _most(lines) for component, lines in severities.items()}


def _most(lines: Sequence[Values]) -> list[float | None]:
    return [
        max((value for value in column if value is not None), default=None)
        for column in zip(*lines, strict=True)
    ]


def _cells(experiment: Experiment, values: Values) -> Iterator[tuple[float, float, str]]:
    """Start, end and colour of each run of columns of one colour, in seconds after the
    injection."""
    grid, zero = experiment.grid, experiment.fault.start
    size = math.ceil(grid.count / MAX_COLUMNS)
    runs: list[tuple[int, int, str]] = []
    for start in range(0, len(values), size):
        known = [value for value in values[start : start + size] if value is not None]
        colour = level(max(known)) if known else "gap"
        begun = runs.pop()[0] if runs and runs[-1][2] == colour else start
        runs.append((begun, start + size, colour))
    for start, end, colour in runs:
        yield grid.time(start) - zero, min(grid.time(end), grid.end) - zero, colour


@styled
def anomaly(experiment: Experiment, side: Side, width: float = TWO_COLUMNS) -> Drawing:
    """Figure 2: a panel for each telling series: the band is mean and two sigma of the baseline,
    the dotted line its median; gaps stay gaps."""
    chosen = telling(side)
    title = "Anomalies: the first series to leave their baselines"
    marks = _marks(experiment, side.milestones, width)
    height = key_height(marks, width) + 0.84 * len(chosen) + BELOW
    drawing = Drawing(_name("anomaly", side), title, width, height)
    panels = drawing.figure.subplots(len(chosen), sharex=True, squeeze=False)[:, 0].tolist()
    for axes, finding in zip(panels, chosen, strict=True):
        label = _short_path(finding.component.label, width)
        axes.set_title(fitted(f"{label}: {finding.title}"), pad=4)
        _series(axes, experiment, finding)
    _time(drawing, experiment, panels, marks)
    return drawing


def _series(axes: Axes, experiment: Experiment, finding: Finding) -> None:
    unit, base, grid = finding.signal.unit, finding.baseline, experiment.grid
    values = [math.nan if value is None else _shown(value) for value in finding.values]
    edges = [value for value in values if not math.isnan(value)]
    if base:
        edges += [_shown(base.low), _shown(base.high), _shown(base.median)]
    low, high = limits(edges)
    axes.set_ylim(low, high)
    if base:
        bottom, top = (min(max(_shown(edge), low), high) for edge in base.two_sigma)
        # A constant series has a band too: one that can be seen.
        top = max(top, bottom + 0.015 * (high - low))
        axes.axhspan(bottom, top, color="#0072b2", alpha=0.18, lw=0)
        axes.axhline(_shown(base.median), color=LINE, lw=0.8, ls=":")
    axes.yaxis.set_major_locator(FixedLocator(round_values(low, high, unit)))
    axes.yaxis.set_major_formatter(lambda value, _: number(value, unit))
    times = [grid.time(at) - experiment.fault.start for at in range(grid.count)]
    axes.plot(times, values, color=COLOURS["detect"], lw=1.1, marker=".", ms=1.5)


def round_values(low: float, high: float, unit: str) -> list[float]:
    """Some three values of a range that are round in their unit: bytes by powers of 1024."""
    size = 1.0
    if unit in ("B", "B/s"):
        largest = max(abs(low), abs(high))
        size = next((float(1 << bits) for bits in (40, 30, 20, 10) if largest >= 1 << bits), 1.0)
    ticks = MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(low / size, high / size)
    return [tick * size for tick in ticks]


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
def diagnosis(
    groups: Sequence[Group], name: str = "diagnosis", width: float = ONE_COLUMN
) -> Drawing:
    """Figure 3: times to detect and localise; a hatched bar is how long the report looked in
    vain."""
    title = "Diagnosis: time to detect and to localise"
    heights = [0.25 + 0.19 * len(group.bars) for group in groups]
    drawing = Drawing(name, title, width, sum(heights) + 0.4)
    panels = drawing.figure.subplots(
        len(groups), sharex=True, squeeze=False, height_ratios=heights
    )[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        axes.set_title(fitted(group.title, _most_text(width) * 2))
        row_labels(axes, [fitted(bar.what, 16) for bar in group.bars])
        axes.spines["left"].set_visible(False)
        for at, bar in enumerate(group.bars):
            seen = bar.seconds is not None
            end = max(bar.seconds, 0.0) if bar.seconds is not None else group.looked
            told = span(bar.seconds) if seen else f"not seen in {span(group.looked)}"
            cell(axes, 0, at + 0.12, end, 0.76, COLOURS[bar.colour] if seen else "gap")
            axes.annotate(
                told, (end, at + 0.5), xytext=(2, 0), textcoords="offset points", va="center"
            )
    looks = [
        group.looked if bar.seconds is None else bar.seconds
        for group in groups
        for bar in group.bars
    ]
    panels[-1].set_xlim(0, 1.25 * max([1.0, *looks]))  # room for the words beside the longest
    panels[-1].xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    panels[-1].xaxis.set_major_formatter(lambda value, _: number(value))
    panels[-1].set_xlabel("s after the injection", labelpad=2)
    return drawing


def _marks(experiment: Experiment, seen: Milestones, width: float) -> list[Mark]:
    start, grid = experiment.fault.start, experiment.grid
    marks = [
        Mark(mark.time - start, _moment(words, mark.time - start), colour)
        for name, words, colour in MOMENTS
        if name != "last_error" and (mark := getattr(seen, name)).time is not None
    ]
    return joined(marks, grid.start - start, grid.end - start, NEAR[width])


def _moment(words: str, after: float) -> str:
    """A length of time stays in one line of the key."""
    return f"{words} {span(after).replace(' ', UNBROKEN)}" if after else words


def _time(
    drawing: Drawing, experiment: Experiment, panels: Sequence[Axes], marks: Sequence[Mark]
) -> None:
    start, grid = experiment.fault.start, experiment.grid
    low, high = grid.start - start, grid.end - start
    time_axis(drawing, panels, low, high, "after the injection", marks)


_Span = tuple[float, float, str]
"""Start and end in Unix seconds, and colour."""


SPANS = {
    "job runs": RUNS,
    "job does not run": STANDS,
    "not known": "gap",
    "out of order": WRONG,
    "stalled": STALLED,
    "fault marked": COLOURS["inject"],
}
"""What the colours of a time line mean."""


@styled
def timeline(phases: Phases, name: str, width: float = TWO_COLUMNS) -> Drawing:
    """One incident: signs and jobs as rows; hatched where it is not known whether a job ran."""
    rows = [*_sign_rows(phases).items(), *_job_rows(phases).items()][:MAX_INCIDENT_ROWS]
    title = "Time line of the incident"
    start, end = _window(phases)
    marks = joined(
        (
            Mark(when - phases.began, _moment(words, when - phases.began), colour)
            for name, words, colour in PHASES
            if (when := getattr(phases, name)) is not None
        ),
        start - phases.began,
        end - phases.began,
        NEAR[width],
    )
    shown = {
        colour
        for _, spans in rows
        for begin, until, colour in spans
        if begin <= end and until >= start
    }
    legend = [_patch(words, colour) for words, colour in SPANS.items() if colour in shown]
    columns = len(legend) if width == TWO_COLUMNS else min(3, len(legend))
    lines = math.ceil(len(legend) / max(columns, 1))
    height = key_height(marks, width) + 0.18 * len(rows) + BELOW + 0.1 + 0.16 * lines
    drawing = Drawing(name, title, width, height)
    axes = drawing.figure.subplots()
    row_labels(axes, [fitted(label, _most_text(width)) for label, _ in rows])
    for at, (_, spans) in enumerate(rows):
        for begin, until, colour in spans:
            first, last = max(begin, start), min(until, end)
            if last >= first:
                wide = max(last - first, LEAST_SHARE[width] * (end - start))
                cell(axes, first - phases.began, at + 0.12, wide, 0.76, colour)
    zero = f"after {clock(phases.began)} UTC"
    time_axis(drawing, [axes], start - phases.began, end - phases.began, zero, marks)
    if legend:
        drawing.legend(legend, columns)
    return drawing


def _patch(words: str, colour: str) -> Patch:
    if colour == "gap":
        return Patch(facecolor="white", edgecolor=LINE, hatch="/////", label=words)
    return Patch(facecolor=colour, label=words)


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
    names = {"silent": "agent silent", "rank_gone": "rank gone"}
    colours = {"fault": COLOURS["inject"], "stall": STALLED}
    rows: dict[str, list[_Span]] = {}
    for sign in phases.incident.signs:
        label = f"{names.get(sign.kind, sign.kind)}, {sign.node or f'job {sign.job_id}'}"
        if sign.kind == "fault":  # its marker may lie on nodes that have nothing to do with it
            label = f"fault, {sign.text or sign.node}"
        span = (sign.start, sign.end, colours.get(sign.kind, WRONG))
        rows.setdefault(label, []).append(span)
    return rows


def _job_rows(phases: Phases) -> dict[str, list[_Span]]:
    grid = phases.grid
    rows: dict[str, list[_Span]] = {}
    hit = {job.job_id for job in phases.hit}
    for job_id, values in phases.running.items():
        if job_id not in hit and not any(values):
            continue
        rows[f"job {job_id}"] = [
            (grid.time(first), grid.time(last + 1), colour)
            for state, colour in ((1, RUNS), (0, STANDS), (None, "gap"))
            for first, last in column_runs(
                [0.0 if value == state else None for value in values], gap=0
            )
        ]
    return rows


USES = {
    "productive": ("trained", "#009e73"),
    "overhead": ("started, saved, ended", "#56b4e9"),
    "standing": ("stood still", "#e69f00"),
    "lost": ("lost", "#d55e00"),
    "unknown": ("stages not recorded", "#c9ced6"),
    "free": ("free, reserved", "#f0e442"),
    "out": ("out of service", "#cc79a7"),
    "unseen": ("not observed", "gap"),
}
"""Words and colour of each group of states."""


@styled
def hours(goodput: Goodput, width: float = TWO_COLUMNS) -> Drawing:
    """A bar for each day or hour: the GPUs by what they did, on average."""
    ledger = goodput.ledger
    at = {each.start: (place, each.seconds) for place, each in enumerate(ledger.bins)}
    gpus = {group: [0.0] * len(at) for group in GROUPS}
    for key, seconds in ledger.rows.items():
        place, length = at[key.start]
        gpus[key.group][place] += seconds / length
    shown = [group for group in GROUPS if any(gpus[group])]
    columns = 4 if width == TWO_COLUMNS else 2
    height = 2.4 + 0.16 * math.ceil(len(USES) / columns)
    drawing = Drawing("hours", "Where the hours went", width, height)
    axes = drawing.figure.subplots()
    bottom = [0.0] * len(at)
    for group in shown:
        for place, high in enumerate(gpus[group]):
            if high:
                cell(axes, place + 0.08, bottom[place], 0.84, high, USES[group][1])
                bottom[place] += high
    high = max([*bottom, 1e-9])
    if goodput.asked.jobs:  # nothing is known of the jobs then, not even how many GPUs they had
        for place, each in enumerate(ledger.bins):
            if unseen := ledger.unseen(each):
                cell(axes, place + 0.08, bottom[place], 0.84, high * unseen / each.seconds, "gap")
                shown = [*(group for group in shown if group != "unseen"), "unseen"]
    axes.set_xlim(0, len(at))
    axes.set_ylim(0, 1.05 * high)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylabel("GPUs")
    every = math.ceil(len(at) / (16 if width == TWO_COLUMNS else 8))
    ticks = range(0, len(at), every)
    begins = [ledger.bins[place].start for place in ticks]
    if ledger.hourly:
        words = [clock(begin)[:5] for begin in begins]
        axes.set_xlabel(f"hour (UTC), from {date(ledger.period.start)}", labelpad=2)
    else:
        words = [date(begin)[8:].lstrip("0") for begin in begins]
        axes.set_xlabel(f"day (UTC), from {date(ledger.period.start)}", labelpad=2)
    axes.set_xticks([place + 0.5 for place in ticks], words)
    drawing.legend(
        [_patch(*USES[group]) for group in shown], min(columns, len(shown)), columnspacing=1.2
    )
    return drawing
