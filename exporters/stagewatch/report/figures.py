"""The figures of an experiment: how far it spread (propagation), and by which series (anomaly).

A figure is as wide as a page, and no text in it is smaller than 7 pt.  It is made of matplotlib's
objects; matplotlib's global state does not change.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from string import ascii_uppercase
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, MultipleLocator

from stagewatch.core.words import printable
from stagewatch.report.components import Component, in_order
from stagewatch.report.deviations import Finding
from stagewatch.report.diagnosis import MOMENTS
from stagewatch.report.events import ANY
from stagewatch.report.experiment import Experiment
from stagewatch.report.history import Grid, Values
from stagewatch.report.periods import number, span

INCHES = 7.0
"""The width of a figure."""
SMALL = 7.0
"""Points, as printed; no text is smaller."""
TEXT = 48
"""Characters of a name."""
TICKS = 9
"""Ticks on an axis of time, at most."""
NEAR = 0.02
"""Moments nearer to each other than this share of the axis share a line."""
KEY_COLUMNS = 2
"""Columns of the key of moments."""

LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Where each colour begins, in multiples of the limit at which a value begins to deviate."""

HEAT = ("#e9eef3", "#fee391", "#fec44f", "#fe9929", "#d95f0e", "#8c2d04")
"""Colours of the baseline and of values from each level on; darker, so distinct in grey too."""

MAX_ROWS = 28
MAX_CELLS = 200

BELOW = 0.4
"""Inches below a plot for the words of its axis."""

LINE = "#9aa3ad"
GAP = "gap"
"""Stands for a colour: the hatching of unknown values."""

COLOURS = {
    "inject": "#d55e00",
    "effect": "#e69f00",
    "detect": "#0072b2",
    "localise": "#cc79a7",
    "error": "#000000",
    "clear": "#009e73",
}
"""Okabe and Ito's colours, which people with any colour vision can tell apart
(https://jfly.uni-koeln.de/color/); words stand beside each."""

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that it is everywhere the same
    "font.size": SMALL,
    "axes.titlesize": SMALL,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.parse_math": False,  # a label may hold any number of $
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",  # words stay words: to be searched, and set in the page's own font
    "pdf.fonttype": 42,  # journals refuse type 3
}

_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
"""Round distances of ticks on an axis of time, in seconds; beyond them come whole days."""

_MIDDLE = re.compile(r"(?<!\S)(/[^/\s]+)(?:/[^/\s]+)+(/[^/\s]+/[^/\s]+)$")


@contextmanager
def _style() -> Iterator[None]:
    """Our style, whatever a matplotlibrc holds; the font draws a box for a character it lacks."""
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        yield


class Drawing:
    """One figure; `name` is its file's name and must be unique on a page."""

    def __init__(self, name: str, title: str, height: float) -> None:
        """`height` is in inches."""
        self.name = name
        self.title = title
        self.figure = Figure(figsize=(INCHES, height), layout="constrained")

    @cached_property
    def svg(self) -> str:
        """The figure as a file, once all is drawn; the page and the file beside it share it."""
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        return self._saved("svg", nothing | {"Title": self.title}).decode()

    def inline(self) -> str:
        """The figure as a part of a page, where it may grow but not shrink.

        The page's style sheet has the rule that matplotlib puts into each file, and elements lose
        the names that other figures have too.
        """
        svg = self.svg[self.svg.index("<svg") :]
        svg = re.sub(r"<(style|metadata)\b.*?</\1>", "", svg, flags=re.DOTALL)
        size = f'role="img" width="{INCHES * 138:g}" style="min-width: {INCHES:g}in"'
        svg = re.sub(r'width="\S+" height="\S+"', size, svg, count=1)
        return re.sub(r'<g id="[^"]*"', "<g", svg)

    def file(self, format: str) -> bytes:
        """The SVG or PDF."""
        if format == "svg":
            return self.svg.encode()
        return self._saved(format, {"CreationDate": None, "Title": self.title})

    def _saved(self, format: str, metadata: dict[str, str | None]) -> bytes:
        file = io.BytesIO()
        with _style(), matplotlib.rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(file, format=format, metadata=metadata)
        return file.getvalue()


def experiment_figures(experiment: Experiment) -> dict[str, Drawing]:
    """The figures with content, by name."""
    figures: dict[str, Drawing] = {}
    if experiment.watched:
        figures["propagation"] = propagation(experiment)
    if experiment.telling():
        figures["anomaly"] = anomaly(experiment)
    return figures


@_style()
def propagation(experiment: Experiment) -> Drawing:
    """A row for each component, and a column for each time.

    The colour shows how far the worst series was from its baseline; unknown values are hatched, and
    the first suspect is bold."""
    worst = _worst(experiment.view.findings)
    errors = {event.component: event.time for event in reversed(experiment.view.events)}
    rows = _rows(experiment, {*worst, *errors})
    height = _key_height(experiment) + 0.155 * len(rows) + BELOW + 0.25
    title = "Propagation: distance of each component from its baseline"
    drawing = Drawing("propagation", title, height)
    axes = drawing.figure.subplots()
    axes.set_ylim(len(rows), 0)  # the first row at the top, each of height 1
    axes.set_yticks([at + 0.5 for at in range(len(rows))], [_named(row) for row in rows])
    axes.tick_params(axis="y", length=0, pad=3)
    grid, zero = experiment.grid, experiment.fault.start
    for at, (row, tick) in enumerate(zip(rows, axes.get_yticklabels(), strict=True)):
        first = row == experiment.suspects[0].component if experiment.suspects else False
        tick.set_fontweight("bold" if first else "normal")
        for start, end, colour in _cells(grid, worst.get(row, [None] * grid.count)):
            place = [(start - zero, end - start)], (at + 0.08, 0.84)
            axes.broken_barh(*place, lw=0, **_look(colour))
        if row in errors:
            for colour, stroke in (("white", 3.0), ("black", 1.4)):
                when = errors[row] - zero
                axes.plot([when], [at + 0.5], "x", ms=5, mew=stroke, color=colour, zorder=5)
    _time(drawing, [axes], experiment)
    words = ("in the baseline", *(f"≥ {each:g}×" for each in LEVELS), "no data")
    legend: list[Artist] = [
        Patch(label=label, **_look(colour))
        for label, colour in zip(words, (*HEAT, GAP), strict=True)
    ]
    if errors.keys() & set(rows):
        legend.append(Line2D([], [], marker="x", color="black", ls="", label="first event"))
    drawing.figure.legend(
        handles=legend, loc="outside lower center", ncols=8, frameon=False, handlelength=1.2
    )
    return drawing


def _rows(experiment: Experiment, seen: Iterable[Component]) -> list[Component]:
    """The components that went wrong or were judged; if there are many, the first suspects."""
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


def _cells(grid: Grid, values: Values) -> Iterator[tuple[float, float, str]]:
    """Runs of columns of one colour, with start and end in Unix seconds.  If there are many
    columns, several are merged into one with their worst value."""
    size = math.ceil(grid.count / MAX_CELLS)
    cells = [_most(values[start : start + size]) for start in range(0, len(values), size)]
    for colour, run in itertools.groupby(range(len(cells)), lambda at: _heat(cells[at])):
        columns = list(run)
        start, end = grid.time(columns[0] * size), grid.time((columns[-1] + 1) * size)
        yield start, min(end, grid.end), colour


def _heat(severity: float | None) -> str:
    return GAP if severity is None else HEAT[sum(severity >= each for each in LEVELS)]


def _look(colour: str) -> dict[str, Any]:
    """The arguments of matplotlib to fill an area with a colour."""
    if colour == GAP:
        return {"facecolor": "white", "edgecolor": LINE, "hatch": "/////"}
    return {"facecolor": colour}


def _named(component: Component, more: str = "") -> str:
    """The name of a component in a figure, as `node-a /mnt/…/checkpoints/700`.

    The middle of a path is left out; the length is limited, keeping the beginning with the node and
    the end of the path; and no character controls terminals or the direction of writing."""
    text = _MIDDLE.sub(r"\1/…\2", component.label) + more
    # Marks that stack up above and below a letter would take the room of the plot.
    text = "".join(c for c in unicodedata.normalize("NFC", text) if not unicodedata.combining(c))
    third = TEXT // 3
    shown = text if len(text) <= TEXT else f"{text[:third]}…{text[third + 1 - TEXT :]}"
    return printable(shown, substitute="�")


@_style()
def anomaly(experiment: Experiment) -> Drawing:
    """A panel for each series of `telling`: the band is the mean of the baseline and two sigma, the
    dotted line is its median; gaps stay gaps."""
    chosen = experiment.telling()
    height = _key_height(experiment) + 0.84 * len(chosen) + BELOW
    drawing = Drawing("anomaly", "Anomalies: the first series to leave their baselines", height)
    panels = drawing.figure.subplots(len(chosen), sharex=True, squeeze=False)[:, 0].tolist()
    for axes, finding in zip(panels, chosen, strict=True):
        axes.set_title(_named(finding.component, f": {finding.title}"), pad=4)
        _series(axes, experiment, finding)
    _time(drawing, panels, experiment)
    return drawing


def _series(axes: Axes, experiment: Experiment, finding: Finding) -> None:
    unit, base, grid = finding.signal.unit, finding.baseline, experiment.grid
    values = [math.nan if value is None else value for value in finding.values]
    if base:
        bottom, top = base.two_sigma
        axes.axhspan(bottom, top, color="#0072b2", alpha=0.18, lw=1)
        axes.axhline(base.median, color=LINE, lw=0.8, ls=":")
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(lambda value, _: number(value, unit))
    times = [grid.time(at) - experiment.fault.start for at in range(grid.count)]
    axes.plot(times, values, color=COLOURS["detect"], lw=1.1, marker=".", ms=1.5)


def _marks(experiment: Experiment) -> list[tuple[float, str, str]]:
    """The milestones that were seen, without the last error: seconds after the injection, words and
    colour."""
    marks = []
    for name, words, colour in MOMENTS:
        after = experiment.after(experiment.milestones[name].time)
        if after is not None and name != "last_error":
            marks.append((after, f"{words} {span(after)}" if after else words, COLOURS[colour]))
    return sorted(marks)


def _key_height(experiment: Experiment) -> float:
    """The height of the key of the moments and their letters above a plot, in inches."""
    return 0.3 + 0.14 * math.ceil(len(_marks(experiment)) / KEY_COLUMNS)


def _time(drawing: Drawing, panels: Sequence[Axes], experiment: Experiment) -> None:
    """Add a time axis, lines at the moments and their key to panels above each other.

    Each line has a letter above the first panel, which moments near to each other share; the key
    says what happened at each letter.  The axis has round times after the injection."""
    zero, grid = experiment.fault.start, experiment.grid
    low, high = grid.start - zero, max(grid.end, grid.start + 1.0) - zero
    least = (high - low) / TICKS
    step = next((each for each in _TIME_STEPS if each >= least), 86400 * math.ceil(least / 86400))
    divisor, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if step >= s)
    panels[-1].set_xlim(low, high)
    panels[-1].xaxis.set_major_locator(MultipleLocator(step))
    panels[-1].xaxis.set_major_formatter(lambda value, _: _signed(round(value) / divisor))
    panels[-1].set_xlabel(f"{unit} after the injection", labelpad=2)
    handles: list[Artist] = []
    letters, letter, last = iter(ascii_uppercase), "", -math.inf
    for when, words, colour in _marks(experiment):
        if not low <= when <= high:
            continue
        style = "-" if colour == COLOURS["inject"] else (0, (4, 2))
        if when - last >= NEAR * (high - low):
            letter, last = next(letters), when
            for axes in panels:
                # A seam shows the line on cells of any colour; it lies below all curves.
                axes.axvline(when, color="white", lw=2.2, alpha=0.7, zorder=1.5)
                axes.axvline(when, color=colour, lw=1.1, ls=style)
            panels[0].annotate(
                letter,
                (when, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3 if len(panels) == 1 else 13),  # above the panel's title
                textcoords="offset points",
                ha="center",
                fontweight="bold",
            )
        handles.append(Line2D([], [], color=colour, lw=1.4, ls=style, label=f"{letter}  {words}"))
    drawing.figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=KEY_COLUMNS,
        frameon=False,
        handlelength=1.6,
        labelspacing=0.2,
        borderpad=0.1,
        alignment="left",
    )


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"
