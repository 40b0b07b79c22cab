"""The common parts of all figures: size and style, printable words, moments in time, and files.

A figure is drawn twice, as wide as one column of a paper and as both, and nothing in it is set
smaller than 7 pt.  Everything is drawn by matplotlib's objects; its global state stays as it was.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple, ParamSpec

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from stagewatch.core.words import printable

ONE_COLUMN = 3.3
TWO_COLUMNS = 7.0
"""Widths in inches, as conferences on systems have them."""

SMALL = 7.0
"""Points, as printed; no text is smaller."""

MAX_TEXT = 48
"""Characters of a name that a figure shows."""

NEAR = {TWO_COLUMNS: 0.02, ONE_COLUMN: 0.05}
"""Moments that are nearer than this share of the axis have one line and their words in common, by
the width."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Name the lines of moments; the key above the figure says what each is."""

UNBROKEN = "\u00a0"
"""The space within a length of time, which stays in one line."""

KEY_LINE = 0.14
"""Inches that a line of a key takes."""

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
        self.name = name if width == TWO_COLUMNS else f"{name}-column"
        self.title = title
        self.width = width
        self.figure = Figure(figsize=(width, height), layout="constrained")

    def legend(self, handles: Sequence[Artist], columns: int, **more: float) -> None:
        """What colours mean, below the plot."""
        self.figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=1.2,
            **more,
        )

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
        grown = self.width * (138 if self.width == TWO_COLUMNS else 110)
        size = f'role="img" width="{grown:g}" style="min-width: {self.width:g}in"'
        svg = re.sub(r'width="\S+" height="\S+"', size, svg, count=1)
        return re.sub(r'<g id="[^"]*"', "<g", svg)

    def file(self, format: str) -> bytes:
        """The SVG, PDF or PNG."""
        if format == "svg":
            return self.svg.encode()
        nothing = {"pdf": "CreationDate", "png": "Software"}
        return self._saved(format, {nothing[format]: None, "Title": self.title})

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
    # Marks that stack up above and below a letter would take the room of the plot.
    text = "".join(c for c in unicodedata.normalize("NFC", text) if not unicodedata.combining(c))
    third = most // 3
    shown = text if len(text) <= most else f"{text[:third]}…{text[third + 1 - most :]}"
    return printable(shown, substitute="�")


class Mark(NamedTuple):
    """A moment, in seconds on the axis of time, with its words and the name of its colour."""

    when: float
    words: str
    colour: str


def joined(
    marks: Iterable[Mark], low: float, high: float, near: float = NEAR[TWO_COLUMNS]
) -> list[Mark]:
    """The marks from `low` to `high` in order, those near to one another as one."""
    kept: list[Mark] = []
    for mark in sorted(marks):
        if not low <= mark.when <= high:
            continue
        if kept and mark.when - kept[-1].when < near * (high - low):
            kept[-1] = kept[-1]._replace(words=f"{kept[-1].words}, {mark.words}")
        else:
            kept.append(mark)
    return kept


def key_lines(marks: Sequence[Mark], width: float) -> list[str]:
    """What each letter means, in lines that fit into a width in inches; a length of time stays in
    one line."""
    return [
        "\n".join(
            textwrap.wrap(f"{letter}  {mark.words}", round(width * 15), subsequent_indent="    ")
        ).replace(UNBROKEN, " ")
        for letter, mark in zip(LETTERS, marks, strict=False)
    ]


def key_height(marks: Sequence[Mark], width: float) -> float:
    """Inches that the key of some moments and their letters take above a plot."""
    lines = [1 + text.count("\n") for text in key_lines(marks, _key_width(width))]
    rows = -(-sum(lines) // 2) if width == TWO_COLUMNS else sum(lines)
    return 0.3 + KEY_LINE * rows


def _key_width(width: float) -> float:
    return (width / 2 if width == TWO_COLUMNS else width) - 0.4


def time_axis(
    drawing: Drawing,
    panels: Sequence[Axes],
    low: float,
    high: float,
    zero: str,
    marks: Sequence[Mark],
) -> None:
    """Give panels above one another an axis of round times, `zero` telling when 0 is, and lines at
    some moments: a letter above the first panel, and a key that says what the letters mean."""
    high = max(high, low + 1.0)
    step = _time_step(high - low, 9 if drawing.width == TWO_COLUMNS else 5)
    divisor, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if step >= s)
    ticks = [at * step for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
    panels[-1].set_xlim(low, high)
    panels[-1].set_xticks(ticks, [_signed(at / divisor) for at in ticks])
    panels[-1].set_xlabel(f"{unit} {zero}", labelpad=2)
    key = key_lines(marks, _key_width(drawing.width))
    handles = []
    for mark, letter, told in zip(marks, LETTERS, key, strict=False):
        style = "-" if mark.colour == "inject" else (0, (4, 2))
        for axes in panels:
            # A seam shows the line on cells of any colour; it lies below all curves.
            axes.axvline(mark.when, color="white", lw=2.2, alpha=0.7, zorder=1.5)
            axes.axvline(mark.when, color=COLOURS[mark.colour], lw=1.1, ls=style)
        panels[0].annotate(
            letter,
            (mark.when, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 if len(panels) == 1 else 13),  # above the panel's title
            textcoords="offset points",
            ha="center",
            fontweight="bold",
        )
        handles.append(Line2D([], [], color=COLOURS[mark.colour], lw=1.4, ls=style, label=told))
    if handles:
        drawing.figure.legend(
            handles=handles,
            loc="outside upper left",
            ncols=2 if drawing.width == TWO_COLUMNS else 1,
            frameon=False,
            handlelength=1.6,
            labelspacing=0.2,
            borderpad=0.1,
            alignment="left",
        )


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"


def _time_step(seconds: float, count: int = 9) -> float:
    """A round number of seconds, about `count` of which make the whole."""
    choices = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
    days = 86400.0 * math.ceil(seconds / count / 86400)
    return next((each for each in choices if seconds / each <= count), days)
