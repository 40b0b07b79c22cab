"""The common parts of all figures: size and style, printable words, moments in time, and files.

A figure is as wide as one column of a paper or both, and nothing in it is set smaller than 7 pt.
Everything is drawn by matplotlib's objects; its global state stays as it was.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stagewatch.core.words import printable

ONE_COLUMN = 3.5
TWO_COLUMNS = 7.0
"""Widths in inches."""

SMALL = 7.0
"""Points, as printed; no text is smaller."""

MAX_TEXT = 48
"""Characters of a name that a figure shows."""

NEAR = 0.03
"""Moments that are nearer than this share of the axis have one line and their words in common."""

LINE = "#9aa3ad"
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

P = ParamSpec("P")


@contextmanager
def _style() -> Iterator[None]:
    """Our style, whatever a matplotlibrc holds; the font draws a box for a character it lacks."""
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        yield


def styled(draw: Callable[P, Drawing]) -> Callable[P, Drawing]:
    """Run a function that draws in our style."""
    return _style()(draw)


class Drawing:
    """One figure of a size in inches; `name` is its file's name and must be unique on a page."""

    def __init__(self, name: str, title: str, width: float, height: float) -> None:
        self.name = name
        self.title = title
        self.width = width
        self.figure = Figure(figsize=(width, height), layout="constrained")

    def svg(self) -> str:
        """The figure as a file."""
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        return self._saved("svg", nothing | {"Title": self.title}).decode()

    def inline(self) -> str:
        """The figure as a part of a page, where it may grow but not shrink.

        The page's style sheet has the rule that matplotlib puts into each file, and elements lose
        the names that other figures have too.
        """
        svg = self.svg()
        svg = re.sub(r"<(style|metadata)\b.*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
        size = f'role="img" width="{self.width * 138:g}" style="min-width: {self.width:g}in"'
        svg = re.sub(r'width="\S+" height="\S+"', size, svg, count=1)
        return re.sub(r'<g id="[^"]*"', "<g", svg)

    def files(self) -> dict[str, bytes]:
        """The SVG, PDF and PNG, by the names of their files."""
        return {
            f"{self.name}.svg": self.svg().encode(),
            f"{self.name}.pdf": self._saved("pdf", {"CreationDate": None, "Title": self.title}),
            f"{self.name}.png": self._saved("png", {"Software": None}),
        }

    def _saved(self, format: str, metadata: dict[str, str | None]) -> bytes:
        file = io.BytesIO()
        with _style(), matplotlib.rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(file, format=format, dpi=300, metadata=metadata)
        return file.getvalue()


def row_labels(axes: Axes, labels: Sequence[str]) -> None:
    """A row for each label, the first at the top, of height 1."""
    axes.set_ylim(len(labels), 0)
    axes.set_yticks([at + 0.5 for at in range(len(labels))], [fitted(each) for each in labels])
    axes.tick_params(axis="y", length=0, pad=3)


def cell(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> Rectangle:
    """A filled rectangle; `gap` is the hatching of what is not known."""
    shape = Rectangle((x, y), width, height, lw=0, fc="white" if colour == "gap" else colour)
    if colour == "gap":
        shape.set(hatch="/////", edgecolor=LINE)
    axes.add_patch(shape)
    return shape


def fitted(text: str, most: int = MAX_TEXT) -> str:
    """Text that any file can hold: of limited length, without characters that control terminals or
    the direction of writing; the beginning is kept, which names a node, and the end, of a path."""
    third = most // 3
    shown = text if len(text) <= most else f"{text[:third]}…{text[third + 1 - most :]}"
    return printable(shown, substitute="�")


class Mark(NamedTuple):
    """A moment, in seconds on the axis of time, with its words and the name of its colour."""

    when: float
    words: str
    colour: str


def joined(marks: Iterable[Mark], low: float, high: float) -> list[Mark]:
    """The marks from `low` to `high` in order, those near to one another as one."""
    kept: list[Mark] = []
    for mark in sorted(marks):
        if not low <= mark.when <= high:
            continue
        if kept and mark.when - kept[-1].when < NEAR * (high - low):
            kept[-1] = kept[-1]._replace(words=f"{kept[-1].words}, {mark.words}")
        else:
            kept.append(mark)
    return kept


def height_of(marks: Iterable[Mark]) -> float:
    """Inches that the words of marks take above a plot."""
    return 0.2 + 0.034 * max((len(mark.words) for mark in marks), default=0)


def time_axis(
    panels: Sequence[Axes], low: float, high: float, zero: str, marks: Iterable[Mark]
) -> None:
    """Give panels above one another an axis of round times, `zero` telling when 0 is, and lines at
    some moments with words above the first panel."""
    high = max(high, low + 1.0)
    step = _time_step(high - low)
    divisor, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if step >= s)
    ticks = [at * step for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
    panels[-1].set_xlim(low, high)
    panels[-1].set_xticks(ticks, [_signed(at / divisor) for at in ticks])
    panels[-1].set_xlabel(f"{unit} {zero}", labelpad=2)
    for when, words, colour in marks:
        for axes in panels:
            style = "-" if colour == "inject" else (0, (4, 2))
            axes.axvline(when, color=COLOURS[colour], lw=1.1, ls=style)
        panels[0].annotate(
            words,
            (when, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 if len(panels) == 1 else 14),  # above the panel's title
            textcoords="offset points",
            rotation=35,
            rotation_mode="anchor",
        )


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"


def _time_step(seconds: float, count: int = 9) -> float:
    """A round number of seconds, about `count` of which make the whole."""
    choices = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
    days = 86400.0 * math.ceil(seconds / count / 86400)
    return next((each for each in choices if seconds / each <= count), days)
