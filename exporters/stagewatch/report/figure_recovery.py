"""One incident as a time line: its phases, the jobs, and what stood still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.report.axes import Scale, time_steps
from stagewatch.report.periods import clock, span
from stagewatch.report.phases import Phases
from stagewatch.report.signs import column_runs
from stagewatch.report.svg import Figure, fitted, text_width

WIDTH = 860.0
LEFT = 150.0
RIGHT = 16.0
TOP = 78.0
ROW = 22.0
MAX_ROWS = 14
PHASES = (
    ("injected", "injected", "inject"),
    ("detected", "detected", "detect"),
    ("drained", "out of service", "effect"),
    ("ended", "job ended", "error"),
    ("node_back", "node back", "clear"),
    ("resumed", "job resumed", "clear"),
)
"""Phases with their words and colours, in the order they should come."""

_WORD_ROWS = 4


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    spans: Sequence[tuple[float, float, str, str]]


def timeline(phases: Phases, name: str) -> Figure:
    """Signs and jobs as rows; hatched where it is not known whether a job ran."""
    rows = (_sign_rows(phases) + _job_rows(phases))[:MAX_ROWS]
    height = TOP + ROW * len(rows) + 44
    figure = Figure(name, "Timeline of the incident", WIDTH, height)
    start, end = _window(phases)
    scale = Scale(start, end, LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * len(rows)
    for at, row in enumerate(rows):
        y = TOP + at * ROW
        figure.text(LEFT - 8, y + 15, fitted(row.label, LEFT - 12), anchor="end")
        for first, last, colour, tip in row.spans:
            left, right = scale(max(first, start)), scale(min(last, end))
            if right >= left:
                figure.rect(left, y + 3, max(right - left, 2), ROW - 6, colour, tip)
    _axis(figure, scale, phases.began, bottom)
    _words(figure, scale, phases, bottom)
    return figure


def _window(phases: Phases) -> tuple[float, float]:
    """A little before it began, and a little after the last phase or sign."""
    times = [when for name, _, _ in PHASES if (when := getattr(phases, name)) is not None]
    ends = [sign.end for sign in phases.incident.signs]
    restored = [job.restored for job in phases.jobs if job.restored is not None]
    last = min(max([*times, *ends, *restored]), phases.grid.end)
    margin = max(0.06 * (last - phases.began), 5 * phases.resolution)
    return max(phases.began - margin, phases.grid.start), min(last + margin, phases.grid.end)


def _sign_rows(phases: Phases) -> list[_Row]:
    names = {"silent": "agent silent", "rank_gone": "rank gone", "fault": "fault marked"}
    rows: dict[str, list[tuple[float, float, str, str]]] = {}
    for sign in phases.incident.signs:
        about = sign.node or f"job {sign.job_id}"
        label = f"{names.get(sign.kind, sign.kind)}, {about}"
        tip = f"{label}: {clock(sign.start)} to {clock(sign.end)} {sign.text}"
        colour = {"fault": "inject", "stall": "heat3"}.get(sign.kind, "heat2")
        rows.setdefault(label, []).append((sign.start, sign.end, colour, tip))
    return [_Row(label, spans) for label, spans in rows.items()]


def _job_rows(phases: Phases) -> list[_Row]:
    rows = []
    hit = {job.job_id for job in phases.jobs if job.interrupted}
    for job_id, values in phases.running.items():
        if job_id not in hit and not any(values):
            continue
        spans = []
        for kind, colour, words in ((1.0, "well", "runs"), (0.0, "soft", "does not run")):
            marked = [value if value == kind else None for value in values]
            spans += _spans(phases, marked, colour, f"job {job_id} {words}")
        unknown = [1.0 if value is None else None for value in values]
        spans += _spans(phases, unknown, "gap", f"job {job_id}: not known")
        rows.append(_Row(f"job {job_id}", spans))
    return rows


def _spans(
    phases: Phases, values: Sequence[float | None], colour: str, words: str
) -> list[tuple[float, float, str, str]]:
    grid = phases.grid
    return [
        (grid.time(first), grid.time(last + 1), colour, f"{words}, {clock(grid.time(first))}")
        for first, last in column_runs(values, gap=0)
    ]


def _axis(figure: Figure, scale: Scale, zero: float, y: float) -> None:
    step = time_steps(scale.high - scale.low)
    figure.path([(scale.start, y), (scale.end, y)], "line", width=1)
    at = -int((zero - scale.low) // step) * step
    while zero + at <= scale.high:
        x = scale(zero + at)
        figure.path([(x, y), (x, y + 4)], "line", width=1)
        words = "0" if not at else f"{'−' if at < 0 else '+'}{span(abs(at)).replace('.0', '')}"
        figure.text(x, y + 17, words, anchor="middle", muted=True)
        at += step
    middle = (scale.start + scale.end) / 2
    figure.text(middle, y + 34, f"from {clock(zero)} UTC", anchor="middle", muted=True)


def _words(figure: Figure, scale: Scale, phases: Phases, bottom: float) -> None:
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_WORD_ROWS)]
    found = [
        (when, words, colour)
        for name, words, colour in PHASES
        if (when := getattr(phases, name)) is not None
    ]
    labels: list[tuple[float, float, str, str, str]] = []
    for when, words, colour in sorted(found, key=lambda each: each[0]):
        x = scale(when)
        text = f"{words} {span(when - phases.began)}" if when != phases.began else words
        width = text_width(text, 11) + 8
        right = x + width <= scale.end
        reach = (x, x + width) if right else (x - width, x)
        free = (
            row
            for row in range(_WORD_ROWS)
            if all(reach[1] <= a or reach[0] >= b for a, b in taken[row])
        )
        row = next(free, _WORD_ROWS - 1)
        taken[row].append(reach)
        y = TOP - 8 - row * 16
        figure.path([(x, y - 9), (x, bottom)], colour, width=1.5, dash="5 3")
        labels.append((x + (4 if right else -4), y, text, colour, "start" if right else "end"))
    for x, y, text, colour, anchor in labels:
        figure.text(x, y, text, size=11, colour=colour, anchor=anchor, clear=True)
