"""The common parts of all figures: size and style, words that fit, the axis of time, and files.

A figure is as wide as one column of a paper or both, and nothing in it is set smaller than 7 pt.
Everything is drawn by matplotlib's objects; its global state stays as it was.
"""

from __future__ import annotations

import io
import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ParamSpec
from xml.etree import ElementTree

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import text_to_path

from stagewatch.core.words import printable

ONE_COLUMN = 3.5
TWO_COLUMNS = 7.0
"""Widths in inches."""

SMALL = 7.0
"""Points, as printed; no text is smaller."""

LINE_HEIGHT = 0.135
"""Inches from one line of words to the next."""

MAX_TEXT = 400

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
    "text.parse_math": False,  # a label may hold any number of $
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",  # words stay words: to be searched, and set in the page's own font
    "pdf.fonttype": 42,  # journals refuse type 3
}

_SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")

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
        self.height = height
        self.figure = Figure(figsize=(width, height))
        self._tips: dict[str, str] = {}

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at a place in inches from the left and the top."""
        bottom = self.height - top - height
        wide, high = self.width, self.height
        axes = self.figure.add_axes((left / wide, bottom / high, width / wide, height / high))
        axes.patch.set_visible(False)  # so that it covers nothing
        return axes

    def words(self, left: float, base: float, text: str, *, bold: bool = False) -> None:
        """Words over everything else, at a base line in inches from the top."""
        self.figure.text(
            left / self.width,
            1 - base / self.height,
            text,
            weight="bold" if bold else "normal",
            bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none"},
        )

    def tip(self, artist: Artist, text: str) -> None:
        """Attach a text that a browser shows under the pointer."""
        gid = f"{self.name}-{len(self._tips) + 1}"
        artist.set_gid(gid)
        self._tips[gid] = clean(text)

    def svg(self) -> str:
        """The figure as a file."""
        text = ElementTree.tostring(self._tree(), encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'

    def inline(self) -> str:
        """The figure as a part of a page, where it may grow but not shrink.

        The page's style sheet has the rule that matplotlib puts into each file, and elements lose
        the names that other figures have too.
        """
        root = self._tree()
        for definitions in root.findall(f"{{{_SVG}}}defs"):
            for style in definitions.findall(f"{{{_SVG}}}style"):
                definitions.remove(style)
        for group in root.iter(f"{{{_SVG}}}g"):
            group.attrib.pop("id", None)
        del root.attrib["height"]
        root.set("width", f"{self.width * 138:g}")
        root.set("style", f"min-width: {self.width:g}in")
        return ElementTree.tostring(root, encoding="unicode")

    def files(self) -> dict[str, bytes]:
        """The SVG, PDF and PNG, by the names of their files."""
        return {
            f"{self.name}.svg": self.svg().encode(),
            f"{self.name}.pdf": self._saved("pdf", {"CreationDate": None, "Title": self.title}),
            f"{self.name}.png": self._saved("png", {"Software": None}),
        }

    def _tree(self) -> ElementTree.Element:
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        root = ElementTree.fromstring(self._saved("svg", nothing))  # noqa: S314 - our own
        root.set("role", "img")
        title = ElementTree.Element(f"{{{_SVG}}}title")
        title.text = self.title
        root.insert(0, title)
        for element in root.iter():
            if tip := self._tips.get(element.get("id", "")):
                title = ElementTree.Element(f"{{{_SVG}}}title")
                title.text = tip
                element.insert(0, title)
        return root

    def _saved(self, format: str, metadata: dict[str, str | None]) -> bytes:
        file = io.BytesIO()
        with _style(), matplotlib.rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(file, format=format, dpi=300, metadata=metadata)
        return file.getvalue()


def row_labels(axes: Axes, labels: Sequence[str]) -> None:
    """A row for each label, the first at the top, of height 1."""
    axes.set_ylim(len(labels), 0)
    axes.set_yticks([at + 0.5 for at in range(len(labels))], labels)
    axes.tick_params(axis="y", length=0, pad=3)


def cell(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> Rectangle:
    """A filled rectangle; `gap` is the hatching of what is not known."""
    shape = Rectangle((x, y), width, height, lw=0, fc="white" if colour == "gap" else colour)
    if colour == "gap":
        shape.set(hatch="/////", edgecolor=LINE)
    axes.add_patch(shape)
    return shape


def clean(text: str) -> str:
    """Text that any file can hold: of limited length, without characters that control terminals or
    the direction of writing."""
    shown = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT // 2]}…{text[-MAX_TEXT // 2 :]}"
    return printable(shown, substitute="�")


def text_width(text: str, *, bold: bool = False) -> float:
    """The width of a text, in inches."""
    font = FontProperties(family=["DejaVu Sans"], size=SMALL, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def fitted(text: str, width: float, *, bold: bool = False) -> str:
    """A text of at most so many inches, cut with an ellipsis; of a path the end is kept, and the
    node before it."""

    def fits(shown: str) -> bool:
        return text_width(shown, bold=bold) <= width

    text = clean(text)
    if fits(text):
        return text
    node, space, path = text.partition(" ")
    kept = f"{node}{space}" if "/" not in node and 2 * text_width(node, bold=bold) < width else ""

    def cut(by: int) -> str:
        if "/" in text:
            return f"{kept}…{(path if kept else text)[by:]}"
        return f"{text[: len(text) - by]}…"

    return cut(bisect_left(range(len(text)), True, lo=1, key=lambda by: fits(cut(by))))


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, in seconds on the axis of time, with its words and the name of its colour."""

    when: float
    words: str
    colour: str


@dataclass(frozen=True, slots=True)
class Label:
    """The words of a mark: from where to where they reach, in inches, and in which row above the
    plot."""

    mark: Mark
    start: float
    end: float
    row: int = 0


class TimeAxis:
    """Seconds along the width of a figure, with marks whose words stand above and never overlap."""

    def __init__(self, low: float, high: float, width: float, marks: Sequence[Mark]) -> None:
        """`width` in inches."""
        self.low = low
        self.high = max(high, low + 1.0)
        self._width = width
        joined = [self._label(mark) for mark in self._joined(marks)]
        # Words stand to the right of their line where there is room, and higher than those whose
        # line is below them: so no line runs through words.
        to_left = [each for each in joined if self._flipped(each)]
        to_right = [each for each in reversed(joined) if not self._flipped(each)]
        self.labels: list[Label] = []
        for each in (*to_left, *to_right):
            below = [
                other.row
                for other in self.labels
                if each.start <= self._inches(other.mark.when) <= each.end
                or (each.start < other.end and other.start < each.end)
            ]
            self.labels.append(replace(each, row=max(below, default=-1) + 1))
        rows = 1 + max((each.row for each in self.labels), default=0)
        self.top = rows * LINE_HEIGHT + 0.04
        """Inches above the plot that the words take."""

    def label(self, axes: Axes, zero: str, *, last: bool = True) -> None:
        """Label round times along the bottom of the `last` plot; `zero` tells when 0 is."""
        step = _time_step(self.high - self.low)
        divisor, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if step >= s)
        first = math.ceil(self.low / step)
        ticks = [at * step for at in range(first, math.floor(self.high / step) + 1)]
        axes.set_xlim(self.low, self.high)
        axes.set_xticks(ticks, [_signed(at / divisor) if last else "" for at in ticks])
        axes.set_xlabel(f"{unit} {zero}" if last else "", labelpad=2)

    def mark(
        self, drawing: Drawing, left: float, top: float, height: float, *, under: bool = False
    ) -> Axes:
        """Draw the marks over a plot that is at this place, or `under` it; the axes are in seconds
        and in inches from the top of the words."""
        whole = self.top + height
        axes = drawing.axes(left, top - self.top, self._width, whole)
        axes.set(xlim=(self.low, self.high), ylim=(whole, 0), zorder=-1 if under else 1)
        axes.set_axis_off()
        for each in self.labels:
            when, colour = each.mark.when, each.mark.colour
            y = self.top - (each.row + 1) * LINE_HEIGHT
            style = "-" if colour == "inject" else (0, (4, 2))
            if not under:
                axes.plot([when] * 2, [self.top, whole], color="white", lw=2.2)
            axes.plot([when] * 2, [y, whole], color=COLOURS[colour], lw=1.1, ls=style)
        for each in self.labels:
            left_of = self._flipped(each)
            axes.annotate(
                each.mark.words,
                (each.mark.when, self.top - (each.row + 0.5) * LINE_HEIGHT),
                xytext=(-3 if left_of else 3, 0),
                textcoords="offset points",
                ha="right" if left_of else "left",
                va="center",
            )
        return axes

    def _label(self, mark: Mark) -> Label:
        x, wide = self._inches(mark.when), text_width(mark.words) + 0.1
        return Label(mark, x, x + wide) if x + wide <= self._width else Label(mark, x - wide, x)

    def _flipped(self, label: Label) -> bool:
        return label.start < self._inches(label.mark.when)

    def _inches(self, when: float) -> float:
        return (when - self.low) / (self.high - self.low) * self._width

    def _joined(self, marks: Sequence[Mark]) -> list[Mark]:
        """The marks in order; marks at the same place share a line and their words."""
        joined: list[Mark] = []
        for mark in sorted(marks, key=lambda each: each.when):
            if not self.low <= mark.when <= self.high:
                continue
            if joined and self._inches(mark.when - joined[-1].when + self.low) < 0.03:
                last = joined[-1]
                joined[-1] = Mark(last.when, f"{last.words}, {mark.words}", last.colour)
            else:
                joined.append(mark)
        return joined


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"


def _time_step(seconds: float, count: int = 9) -> float:
    """A round number of seconds, about `count` of which make the whole."""
    choices = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
    days = 86400.0 * math.ceil(seconds / count / 86400)
    return next((each for each in choices if seconds / each <= count), days)
