"""The figures of the reports: propagation and anomaly of an experiment, incidents as time lines,
and where the hours of GPUs went."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

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
from stagewatch.report.goodput import Goodput
from stagewatch.report.history import Grid, Values, column_runs
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

SPANS = {
    "job runs": RUNS,
    "job does not run": STANDS,
    "not known": draw.GAP,
    "out of order": WRONG,
    "stalled": STALLED,
    "fault marked": draw.COLOURS["inject"],
}
"""What the colours of a time line mean."""

USES = {
    "productive": ("trained", "#009e73"),
    "overhead": ("started, saved, ended", "#56b4e9"),
    "standing": ("stood still", "#e69f00"),
    "lost": ("lost", "#d55e00"),
    "unknown": ("stages not recorded", "#c9ced6"),
    "free": ("free, reserved", "#f0e442"),
    "out": ("out of service", "#cc79a7"),
    "unseen": ("not observed", draw.GAP),
}
"""Words and colour of each group of states."""

MAX_ROWS = 28
MAX_CELLS = 200
MAX_INCIDENT_ROWS = 14

BELOW = 0.4
"""Inches below a plot for the words of its axis."""

_MIDDLE = re.compile(r"(?<!\S)(/[^/\s]+)(?:/[^/\s]+)+(/[^/\s]+/[^/\s]+)$")

Figures = dict[str, list[draw.Drawing]]
"""Figures by name, as wide as a page and as a column."""

_Span = tuple[float, float, str]
"""Start and end in Unix seconds, and colour."""


def _both(figure: Callable[[draw.Paper], draw.Drawing]) -> list[draw.Drawing]:
    return [figure(draw.PAGE), figure(draw.COLUMN)]


def experiment_figures(experiment: Experiment) -> Figures:
    """The figures that have something to show."""
    figures: Figures = {}
    if experiment.watched:
        figures["propagation"] = _both(partial(propagation, experiment))
    if experiment.telling():
        figures["anomaly"] = _both(partial(anomaly, experiment))
    return figures


def recovery_figures(recovery: Recovery) -> Figures:
    """The time line of each incident that has one."""
    return {name: _both(partial(timeline, each, name)) for _, each, name in recovery.shown()}


def goodput_figures(goodput: Goodput) -> Figures:
    """Where the hours went."""
    return {"hours": _both(partial(hours, goodput))}


@draw.styled
def propagation(experiment: Experiment, paper: draw.Paper) -> draw.Drawing:
    """A row for each component, a column for each moment; hatched where nothing is known, coloured
    by how far the worst series was from its baseline; the first suspect is bold."""
    worst = _worst(experiment.view.findings)
    errors = {event.component: event.time for event in reversed(experiment.view.events)}
    rows = _rows(experiment, {*worst, *errors})
    marks = _marks(experiment)
    legend_height = 0.25 if paper is draw.PAGE else 0.6
    height = draw.key_height(marks, paper) + 0.155 * len(rows) + BELOW + legend_height
    title = "Propagation: distance of each component from its baseline"
    drawing = draw.Drawing("propagation", title, paper, height)
    axes = drawing.figure.subplots()
    draw.row_labels(axes, [_short_path(row.label, paper) for row in rows], paper)
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
    drawing.legend(legend, paper.legend)
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


def _short_path(label: str, paper: draw.Paper) -> str:
    """A name without the middle of its path, `node-a /mnt/…/checkpoints/700`, or in one column
    without all but its end; tables have all of it."""
    return _MIDDLE.sub(r"\1/…\2" if paper is draw.PAGE else r"…\2", label)


@draw.styled
def anomaly(experiment: Experiment, paper: draw.Paper) -> draw.Drawing:
    """A panel for each telling series: the band is mean and two sigma of the baseline, the dotted
    line its median; gaps stay gaps."""
    chosen = experiment.telling()
    marks = _marks(experiment)
    height = draw.key_height(marks, paper) + 0.84 * len(chosen) + BELOW
    title = "Anomalies: the first series to leave their baselines"
    drawing = draw.Drawing("anomaly", title, paper, height)
    panels = drawing.figure.subplots(len(chosen), sharex=True, squeeze=False)[:, 0].tolist()
    for axes, finding in zip(panels, chosen, strict=True):
        label = _short_path(finding.component.label, paper)
        axes.set_title(draw.fitted(f"{label}: {finding.title}", draw.PAGE.text), pad=4)
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
    seen = experiment.milestones.items()
    times = {name: each.time for name, each in seen if name != "last_error"}
    return _moments(MOMENTS, times, experiment.fault.start)


def _moments(
    moments: Iterable[tuple[str, str, str]], times: Mapping[str, float | None], zero: float
) -> list[draw.Mark]:
    """The marks of those moments that were seen, with how long after `zero` each came."""
    seen = [
        (when - zero, words, colour)
        for name, words, colour in moments
        if (when := times.get(name)) is not None
    ]
    return [
        draw.Mark(at, f"{words} {span(at)}" if at else words, colour) for at, words, colour in seen
    ]


def _time(
    drawing: draw.Drawing,
    panels: Sequence[Axes],
    experiment: Experiment,
    marks: Sequence[draw.Mark],
) -> None:
    start, grid = experiment.fault.start, experiment.grid
    draw.time_axis(drawing, panels, grid.start - start, grid.end - start, "after the injection")
    draw.mark_moments(drawing, panels, marks)


@draw.styled
def timeline(phases: Phases, name: str, paper: draw.Paper = draw.PAGE) -> draw.Drawing:
    """One incident: signs and jobs as rows; hatched where it is not known whether a job ran."""
    rows = [*_sign_rows(phases).items(), *_job_rows(phases).items()][:MAX_INCIDENT_ROWS]
    start, end = _window(phases)
    zero = phases.began
    marks = _moments(PHASES, {name: getattr(phases, name) for name, _, _ in PHASES}, zero)
    seen = {colour for _, spans in rows for a, b, colour in spans if a <= end and b >= start}
    legend = [draw.patch(words, colour) for words, colour in SPANS.items() if colour in seen]
    lines = math.ceil(len(legend) / paper.legend)
    height = draw.key_height(marks, paper) + 0.18 * len(rows) + BELOW + 0.1 + 0.16 * lines
    drawing = draw.Drawing(name, "Time line of the incident", paper, height)
    axes = drawing.figure.subplots()
    draw.row_labels(axes, [label for label, _ in rows], paper)
    for at, (_, spans) in enumerate(rows):
        for begin, until, colour in spans:
            first, last = max(begin, start), min(until, end)
            if last >= first:
                draw.bar(
                    axes, at, first - zero, max(last - first, paper.least * (end - start)), colour
                )
    draw.time_axis(drawing, [axes], start - zero, end - zero, f"after {clock(zero)} UTC")
    draw.mark_moments(drawing, [axes], marks)
    if legend:
        drawing.legend(legend, paper.legend)
    return drawing


def _window(phases: Phases) -> tuple[float, float]:
    """The time to show: from shortly before the beginning to shortly after the last phase or
    sign."""
    times = [when for name, _, _ in PHASES if (when := getattr(phases, name)) is not None]
    ends = [sign.end for sign in phases.incident.signs]
    restored = [job.restored for job in phases.jobs if job.restored is not None]
    last = min(max([*times, *ends, *restored]), phases.grid.end)
    margin = max(0.06 * (last - phases.began), 5 * phases.grid.step)
    return max(phases.began - margin, phases.grid.start), min(last + margin, phases.grid.end)


def _sign_rows(phases: Phases) -> dict[str, list[_Span]]:
    names = {"silent": "agent silent", "rank_gone": "rank gone"}
    colours = {"fault": draw.COLOURS["inject"], "stall": STALLED}
    rows: dict[str, list[_Span]] = {}
    for sign in phases.incident.signs:
        where = sign.node or f"job {sign.job_id}"
        if sign.kind == "fault":  # its marker may lie on nodes that have nothing to do with it
            where = sign.text or sign.node
        times = (sign.start, sign.end, colours.get(sign.kind, WRONG))
        rows.setdefault(f"{names.get(sign.kind, sign.kind)}, {where}", []).append(times)
    return rows


def _job_rows(phases: Phases) -> dict[str, list[_Span]]:
    grid, hit = phases.grid, {job.job_id for job in phases.hit}
    rows: dict[str, list[_Span]] = {}
    for job_id, values in phases.running.items():
        if job_id in hit or any(values):
            rows[f"job {job_id}"] = [
                (grid.time(first), grid.time(last + 1), colour)
                for state, colour in ((1, RUNS), (0, STANDS), (None, draw.GAP))
                for first, last in column_runs(
                    [0.0 if value == state else None for value in values], gap=0
                )
            ]
    return rows


@draw.styled
def hours(goodput: Goodput, paper: draw.Paper) -> draw.Drawing:
    """A bar for each day or hour: the GPUs by what they did, on average."""
    ledger = goodput.ledger
    at = {each.start: place for place, each in enumerate(ledger.bins)}
    gpus = {group: [0.0] * len(at) for group in GROUPS}
    for key, seconds in ledger.rows.items():
        place = at[key.start]
        gpus[key.group][place] += seconds / ledger.bins[place].seconds
    high = max(*map(sum, zip(*gpus.values(), strict=True)), 1e-9)
    if goodput.asked.jobs:  # nothing is known of the jobs then, not even how many GPUs they had
        gpus["unseen"] = [high * ledger.unseen(each) / each.seconds for each in ledger.bins]
    shown = [group for group, values in gpus.items() if any(values)]
    columns = paper.legend // 2
    height = 2.4 + 0.16 * math.ceil(len(USES) / columns)
    drawing = draw.Drawing("hours", "Where the hours went", paper, height)
    axes = drawing.figure.subplots()
    bottom = [0.0] * len(at)
    for group in shown:
        fill = draw.look(USES[group][1])
        axes.bar([place + 0.5 for place in at.values()], gpus[group], 0.84, bottom, lw=0, **fill)
        bottom = [low + more for low, more in zip(bottom, gpus[group], strict=True)]
    axes.set_xlim(0, len(at))
    axes.set_ylim(0, 1.05 * high)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylabel("GPUs")
    ticks = range(0, len(at), math.ceil(len(at) / (2 * paper.legend)))
    begins = [ledger.bins[place].start for place in ticks]
    words = [clock(each)[:5] if ledger.hourly else date(each)[8:].lstrip("0") for each in begins]
    unit = "hour" if ledger.hourly else "day"
    axes.set_xlabel(f"{unit} (UTC), from {date(ledger.period.start)}", labelpad=2)
    axes.set_xticks([place + 0.5 for place in ticks], words)
    drawing.legend([draw.patch(*USES[group]) for group in shown], columns, columnspacing=1.2)
    return drawing
