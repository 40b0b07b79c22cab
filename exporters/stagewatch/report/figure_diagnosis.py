"""Figure 3: time to detect and to localise, with fine-grained monitoring and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.axes import Scale, number, round_steps
from stagewatch.report.periods import span
from stagewatch.report.svg import Figure, text_width

WIDTH = 860.0
LEFT = 150.0
RIGHT = 150.0
TOP = 16.0
BAR = 17.0


@dataclass(frozen=True, slots=True)
class Bar:
    """Seconds from the injection; None: not within `looked`."""

    what: str
    seconds: float | None
    colour: str


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one scenario and one view; `looked` is how long it was looked."""

    title: str
    bars: Sequence[Bar]
    looked: float


def diagnosis(groups: Sequence[Group], name: str = "diagnosis") -> Figure:
    """What was not seen is hatched as far as it was looked for, and says so."""
    height = TOP + sum(26 + (BAR + 5) * len(group.bars) for group in groups) + 44
    figure = Figure(name, "Diagnosis: time to detect and to localise", WIDTH, height)
    longest = max(
        [bar.seconds or group.looked for group in groups for bar in group.bars], default=1.0
    )
    scale = Scale(0.0, max(longest, 1.0), LEFT, WIDTH - RIGHT)
    y = TOP
    titles: list[tuple[float, str]] = []
    for group in groups:
        titles.append((y + 10, group.title))
        y += 18
        for bar in group.bars:
            _bar(figure, bar, group.looked, y, scale)
            y += BAR + 5
        y += 8
    figure.path([(scale.start, TOP), (scale.start, y)], "line", width=1)
    for at, title in titles:
        figure.text(8, at, title, bold=True, clear=True)
    for value in round_steps(0.0, scale.high, 6):
        x = scale(value)
        figure.path([(x, y), (x, y + 4)], "line", width=1)
        figure.text(x, y + 17, number(value), anchor="middle", muted=True)
    middle = (scale.start + scale.end) / 2
    figure.text(middle, y + 34, "s after the injection", anchor="middle", muted=True)
    return figure


def _bar(figure: Figure, bar: Bar, looked: float, y: float, scale: Scale) -> None:
    figure.text(LEFT - 8, y + 13, bar.what, anchor="end")
    if bar.seconds is None:
        words = f"not seen in {span(looked)}"
        end = scale(min(looked, scale.high))
        figure.rect(scale.start, y, end - scale.start, BAR, "gap", words)
    else:
        words = span(bar.seconds)
        end = max(scale(max(bar.seconds, 0.0)), scale.start + 1)
        figure.rect(scale.start, y, end - scale.start, BAR, bar.colour, words)
    x = min(end + 6, WIDTH - 4 - text_width(words, 11))
    figure.text(x, y + 13, words, size=11)
