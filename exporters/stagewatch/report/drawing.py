"""The common parts of the figures: size and style, printable words, moments in time, and files.

A figure is as wide as a page, and no text in it is smaller than 7 pt.  It is made of matplotlib's
objects; matplotlib's global state does not change.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple, ParamSpec

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator

from stagewatch.core.words import printable

INCHES = 7.0
"""The width of a figure."""
SMALL = 7.0
"""Points, as printed; no text is smaller."""
TEXT = 48
"""Characters of a name."""
TICKS = 9
"""Ticks on an axis of time, at most."""
NEAR = 0.02
"""Moments that are nearer than this share of the axis share a line."""
KEY_COLUMNS = 2
"""Columns of the key of moments."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Name the lines of moments; the key above the figure says what each is."""

LINE = "#9aa3ad"
GAP = "gap"
"""Stands for a colour: the hatching of what is not known."""

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


def row_labels(axes: Axes, labels: Sequence[str]) -> None:
    """A row for each label, the first at the top, of height 1."""
    axes.set_ylim(len(labels), 0)
    rows = [at + 0.5 for at in range(len(labels))]
    axes.set_yticks(rows, [fitted(each) for each in labels])
    axes.tick_params(axis="y", length=0, pad=3)


def bar(axes: Axes, row: int, start: float, width: float, colour: str) -> None:
    """A bar in a row."""
    axes.broken_barh([(start, width)], (row + 0.08, 0.84), lw=0, **look(colour))


def look(colour: str) -> dict[str, Any]:
    """How something of a colour is filled."""
    if colour == GAP:
        return {"facecolor": "white", "edgecolor": LINE, "hatch": "/////"}
    return {"facecolor": colour}


def patch(words: str, colour: str) -> Patch:
    """A colour's entry in a legend."""
    return Patch(label=words, **look(colour))


def fitted(text: str) -> str:
    """Text that any file can hold: of limited length, without characters that control terminals or
    the direction of writing; the beginning is kept, which names a node, and the end, of a path."""
    # Marks that stack up above and below a letter would take the room of the plot.
    text = "".join(c for c in unicodedata.normalize("NFC", text) if not unicodedata.combining(c))
    third = TEXT // 3
    shown = text if len(text) <= TEXT else f"{text[:third]}…{text[third + 1 - TEXT :]}"
    return printable(shown, substitute="�")


class Mark(NamedTuple):
    """A moment, in seconds on the axis of time, with its words and the name of its colour."""

    when: float
    words: str
    colour: str


def key_height(marks: Sequence[Mark]) -> float:
    """Inches that the key of some moments and their letters take above a plot."""
    return 0.3 + 0.14 * -(-len(marks) // KEY_COLUMNS)


def time_axis(panels: Sequence[Axes], low: float, high: float) -> None:
    """Give panels above one another an axis of round times after the injection."""
    high = max(high, low + 1.0)
    least = (high - low) / TICKS
    step = next((each for each in _TIME_STEPS if each >= least), 86400 * -(-least // 86400))
    divisor, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if step >= s)
    panels[-1].set_xlim(low, high)
    panels[-1].xaxis.set_major_locator(MultipleLocator(step))
    panels[-1].xaxis.set_major_formatter(lambda value, _: _signed(round(value) / divisor))
    panels[-1].set_xlabel(f"{unit} after the injection", labelpad=2)


def mark_moments(drawing: Drawing, panels: Sequence[Axes], marks: Iterable[Mark]) -> None:
    """Lines at moments that the panels show: a letter above the first panel, which moments near to
    one another share, and a key that says what happened at each letter."""
    low, high = panels[-1].get_xlim()
    handles: list[Artist] = []
    letters, letter, last = iter(LETTERS), "", -float("inf")
    for mark in sorted(each for each in marks if low <= each.when <= high):
        style = "-" if mark.colour == "inject" else (0, (4, 2))
        colour = COLOURS[mark.colour]
        if mark.when - last >= NEAR * (high - low):
            letter, last = next(letters), mark.when
            for axes in panels:
                # A seam shows the line on cells of any colour; it lies below all curves.
                axes.axvline(mark.when, color="white", lw=2.2, alpha=0.7, zorder=1.5)
                axes.axvline(mark.when, color=colour, lw=1.1, ls=style)
            panels[0].annotate(
                letter,
                (mark.when, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3 if len(panels) == 1 else 13),  # above the panel's title
                textcoords="offset points",
                ha="center",
                fontweight="bold",
            )
        label = f"{letter}  {mark.words}"
        handles.append(Line2D([], [], color=colour, lw=1.4, ls=style, label=label))
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
