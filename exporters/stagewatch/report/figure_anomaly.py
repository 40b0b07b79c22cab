"""Figure 2: the most telling series with their baselines, the injection and the first error."""

from __future__ import annotations

from collections.abc import Sequence

from stagewatch.report.axes import Scale, marks, number, round_steps, time_axis
from stagewatch.report.experiment import Experiment, Side
from stagewatch.report.findings import Finding
from stagewatch.report.milestones import steady
from stagewatch.report.svg import Figure, fitted

WIDTH = 860.0
LEFT = 84.0
RIGHT = 14.0
TOP = 77.0
PANEL = 108.0
PLOT = 70.0
MAX_PANELS = 5
PER_COMPONENT = 2
PER_SIGNAL = 2


def telling(side: Side) -> list[Finding]:
    """The series to show: at most two of a component and of a kind, in the order they deviated,
    those of the first suspect first; where none deviated, some that have a baseline."""
    chosen: list[Finding] = []
    order = {suspect.component: at for at, suspect in enumerate(side.suspects)}
    candidates = sorted(
        steady(side.view.findings),
        key=lambda each: (order.get(each.component, len(order)) > 0, each.deviated, -each.severity),
    )
    for each in candidates or [each for each in side.view.findings if each.baseline]:
        mine = [one for one in chosen if one.component == each.component]
        alike = any(one.signal == each.signal for one in mine)
        kind = sum(one.signal == each.signal for one in chosen)
        room = len(mine) < PER_COMPONENT and kind < PER_SIGNAL and len(chosen) < MAX_PANELS
        if room and not alike:
            chosen.append(each)
    return chosen


def anomaly(experiment: Experiment, side: Side) -> Figure:
    """A panel for each series: the band is mean and two sigma of the baseline, the line its median;
    gaps stay gaps."""
    chosen = telling(side)
    height = TOP + PANEL * max(len(chosen), 1) + 30
    name = "anomaly" if side.view.name == "full" else "anomaly-controller"
    title = "Anomalies: the first series to leave their baselines"
    figure = Figure(name, title, WIDTH, height)
    grid = experiment.grid
    scale = Scale(grid.start, grid.end, LEFT, WIDTH - RIGHT)
    bottom = TOP + PANEL * (len(chosen) - 1) + 18 + PLOT if chosen else TOP + 30
    if not chosen:
        figure.text(LEFT, TOP + 16, "no series with a baseline", muted=True)
    marks(figure, scale, side.milestones, TOP, bottom)
    for at, finding in enumerate(chosen):
        _panel(figure, experiment, finding, TOP + at * PANEL, scale)
    time_axis(figure, scale, experiment.fault.start, bottom, bottom)
    return figure


def _panel(
    figure: Figure, experiment: Experiment, finding: Finding, top: float, scale: Scale
) -> None:
    unit = finding.signal.unit
    label = f"{finding.component.label}: {finding.title}"
    figure.text(LEFT, top + 12, fitted(label, scale.end - LEFT), bold=True, clear=True)
    known = [value for value in finding.values if value is not None]
    edges = list(known)
    if finding.baseline:
        edges += [finding.baseline.low, finding.baseline.high, finding.baseline.median]
    low, high = _limits(edges)
    vertical = Scale(low, high, top + 18 + PLOT, top + 18)
    if finding.baseline:
        bottom, upper = finding.baseline.two_sigma
        y = vertical(min(upper, high))
        figure.rect(
            scale.start,
            y,
            scale.end - scale.start,
            vertical(max(bottom, low)) - y,
            "band",
            f"baseline: mean {number(finding.baseline.mean, unit)}, two sigma "
            f"{number(bottom, unit)} to {number(upper, unit)}",
        )
        y = vertical(finding.baseline.median)
        figure.path([(scale.start, y), (scale.end, y)], "muted", width=1, dash="2 3")
    figure.path([(scale.start, top + 18), (scale.start, top + 18 + PLOT)], "line", width=1)
    for value in round_steps(low, high, 3):
        y = vertical(value)
        figure.text(LEFT - 7, y + 4, number(value, unit), anchor="end", size=11, muted=True)
        figure.path([(scale.start - 3, y), (scale.start, y)], "line", width=1)
    grid = experiment.grid
    for piece in pieces(finding.values):
        figure.path(
            [(scale(grid.time(at)), vertical(value)) for at, value in piece], "series", width=1.6
        )


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """From zero, but where all values are far from it: there their differences fill the panel."""
    low, high = min(values), max(values)
    if low > 0.5 * high > 0 and high > low:
        margin = 0.25 * (high - low)
        return low - margin, high + margin
    low = min(0.0, low)
    return low, high if high > low else low + 1


def pieces(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Runs of known values with their columns: what may be joined by a line."""
    found: list[list[tuple[int, float]]] = []
    for at, value in enumerate(values):
        if value is None:
            continue
        if found and found[-1][-1][0] == at - 1:
            found[-1].append((at, value))
        else:
            found.append([(at, value)])
    return found
