"""Scales and axes that the figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.milestones import Milestones
from stagewatch.report.svg import Figure, text_width

MARKS = (
    ("injected", "injected", "inject"),
    ("effect", "effect", "effect"),
    ("detected", "detected", "detect"),
    ("localised", "localised", "localise"),
    ("first_error", "first error", "error"),
    ("ended", "fault ended", "clear"),
    ("clear", "clear", "clear"),
)
"""Milestones with the words and the colour that mark them."""

MARK_ROWS = 4
_CLOSE = 4.0
"""Pixels within which two marks share their words."""

_ROW = 15


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.end - self.start)


def round_steps(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from low to high."""
    span = high - low
    if not 1e-200 < span < math.inf:
        return [low]
    raw = span / count
    magnitude = 10 ** math.floor(math.log10(raw))
    step = next(magnitude * each for each in (1, 2, 5, 10) if magnitude * each >= raw)
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


def time_steps(seconds: float, count: int = 8) -> float:
    """A round number of seconds, about `count` of which make the whole."""
    choices = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
    return next((each for each in choices if seconds / each <= count), seconds / count)


def time_axis(figure: Figure, scale: Scale, zero: float, y: float, top: float) -> None:
    """Seconds or minutes after a moment, along the bottom, with lines up to `top`."""
    step = time_steps(scale.high - scale.low)
    divisor, unit = (60.0, "min") if step >= 60 else (1.0, "s")
    at = math.ceil((scale.low - zero) / step) * step
    figure.path([(scale.start, y), (scale.end, y)], "line", width=1)
    while zero + at <= scale.high:
        x = scale(zero + at)
        figure.path([(x, top), (x, y + 4)], "line", width=0.5)
        figure.text(x, y + 17, f"{at / divisor:+g}" if at else "0", anchor="middle", muted=True)
        at += step
    middle = (scale.start + scale.end) / 2
    figure.text(middle, y + 34, f"{unit} after the injection", anchor="middle", muted=True)


def marks(figure: Figure, scale: Scale, seen: Milestones, top: float, bottom: float) -> None:
    """Lines where the milestones are, with words above `top` that do not overlap."""
    rows: list[list[tuple[float, float]]] = [[] for _ in range(MARK_ROWS)]
    labels: list[tuple[float, float, str, str, str]] = []
    for x, words, colour in _marked(scale, seen):
        dash = "" if colour == "inject" else "5 3"
        width = text_width(words, 11) + 8
        right = x + width <= scale.end
        span = (x, x + width) if right else (x - width, x)
        row = next((row for row in range(MARK_ROWS) if _free(rows[row], span)), MARK_ROWS - 1)
        rows[row].append(span)
        y = top - 6 - row * _ROW
        figure.path([(x, y - 9), (x, bottom)], colour, width=1.5, dash=dash)
        labels.append((x + (4 if right else -4), y, words, colour, "start" if right else "end"))
    for x, y, words, colour, anchor in labels:
        figure.text(x, y, words, size=11, colour=colour, anchor=anchor, clear=True)


def _marked(scale: Scale, seen: Milestones) -> list[tuple[float, str, str]]:
    """Where, what and in which colour; those that fall together with one line for all."""
    found: list[tuple[float, str, str]] = []
    moments = [
        (mark.time, words, colour)
        for name, words, colour in MARKS
        if (mark := getattr(seen, name)).time is not None and scale.low <= mark.time <= scale.high
    ]
    for when, words, colour in sorted(moments, key=lambda each: each[0]):
        x = scale(when)
        if found and x - found[-1][0] < _CLOSE:
            found[-1] = (found[-1][0], f"{found[-1][1]}, {words}", found[-1][2])
        else:
            found.append((x, words, colour))
    return found


def _free(taken: Sequence[tuple[float, float]], span: tuple[float, float]) -> bool:
    return all(span[1] <= start or span[0] >= end for start, end in taken)


def number(value: float, unit: str = "") -> str:
    """A value with its unit, short."""
    if unit in ("B", "B/s"):
        for size, prefix in ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
            if abs(value) >= size:
                return f"{value / size:.3g} {prefix}{unit}"
        return f"{value:.3g} {unit}"
    if unit == "ratio":
        return f"{100 * value:.3g} %"
    if unit == "s" and 0 < abs(value) < 0.9995e-3:  # what rounds to 1000 has the next unit
        return f"{value * 1e6:.3g} µs"
    if unit == "s" and 0 < abs(value) < 0.9995:
        return f"{value * 1000:.3g} ms"
    shown = f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    return f"{shown} {unit}".rstrip()
