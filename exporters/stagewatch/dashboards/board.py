"""Puts a board together: variables, annotations, links, and panels that flow into rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core

from stagewatch.dashboards.annotations import house_annotations
from stagewatch.dashboards.modern import Dashboard, Panel, Row
from stagewatch.dashboards.panels import text
from stagewatch.dashboards.variables import variables

COLUMNS = 24
TAG = "stagewatch"
_RANGES = (
    ("Last hour", "now-1h"),
    ("Last 3 hours", "now-3h"),
    ("Last 6 hours", "now-6h"),
    ("Last 12 hours", "now-12h"),
    ("Last day", "now-24h"),
    ("Last 2 days", "now-2d"),
    ("Last 7 days", "now-7d"),
    ("Last 30 days", "now-30d"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading; a collapsed one asks nothing until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


def section(title: str, *panels: Panel, collapsed: bool = False) -> Section:
    """Panels under a heading."""
    return Section(title, panels, collapsed)


def board(
    title: str,
    *,
    uid: str,
    description: str,
    guide: str,
    variables_used: Iterable[str],
    sections: Sequence[Section],
    tags: Sequence[str] = (),
) -> Dashboard:
    """A whole board; `guide` is the Markdown that says how to read it."""
    dashboard: Dashboard = Dashboard(
        title=title,
        uid=uid,
        description=description,
        tags=[TAG, *tags],
        refresh="30s",
        graphTooltip=1,  # one crosshair over all panels
        time=core.Time("now-1h", "now"),
        picker=_time_picker(),
        templating=core.Templating(list=variables(variables_used)),
        annotations=core.Annotations(list=house_annotations()),
        links=[core.DashboardLink(type="dashboards", tags=[TAG], keepTime=True, includeVars=True)],
        panels=_lay_out([Section("", (text("How to read this board", guide),)), *sections]),
    ).auto_panel_ids()
    return dashboard


def _lay_out(sections: Iterable[Section]) -> list[Any]:
    """Rows and panels with their places; each section begins on a new line."""
    placed: list[Any] = []
    y = 0
    for each in sections:
        row = None
        if each.title:
            position = core.GridPos(h=1, w=COLUMNS, x=0, y=y)
            row = Row(title=each.title, gridPos=position, collapsed=each.collapsed, panels=[])
            placed.append(row)
            y += 1
        below = _flow(each.panels, y)
        if row is not None and each.collapsed:
            row.panels = list(each.panels)
        else:
            placed += each.panels
            y = below
    return placed


def _flow(panels: Iterable[Panel], y: int) -> int:
    """Place panels left to right and line by line; returns the first free line."""
    x = height = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        panel.gridPos = core.GridPos(h=panel.rows, w=panel.width, x=x, y=y)
        x += panel.width
        height = max(height, panel.rows)
    return y + height


def _time_picker() -> dict[str, Any]:
    return {
        "refresh_intervals": ["10s", "30s", "1m", "5m", "15m", "1h"],
        "quick_ranges": [{"display": name, "from": start, "to": "now"} for name, start in _RANGES],
    }
