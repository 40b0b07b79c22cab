"""One factory per kind of panel; every one takes a title, what it shows, and its queries."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stagewatch.dashboards.filters import expand
from stagewatch.dashboards.look import NEUTRAL, Threshold, threshold_json
from stagewatch.dashboards.modern import Panel, Target


@dataclass(frozen=True, slots=True)
class Query:
    """An expression (filter words allowed) and the name of its series."""

    expr: str
    legend: str = ""


Queries = str | Query | Sequence[Query]


def stat(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    mappings: Sequence[dict[str, Any]] = (),
    width: int = 4,
    rows: int = 4,
    spark: bool = True,
) -> Panel:
    """One number with its recent past behind it."""
    field = _field(unit, thresholds, mappings)
    options = {
        "colorMode": "value",
        "graphMode": "area" if spark else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }
    return make_panel("stat", title, description, _targets(queries), width, rows, field, options)


def timeseries(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: tuple[Threshold, ...] = (),
    stack: bool = False,
    log: bool = False,
    minimum: float | None = 0,
    maximum: float | None = None,
    width: int = 12,
    rows: int = 8,
) -> Panel:
    """Lines over time; given thresholds are drawn as lines."""
    field = _field(unit, thresholds or NEUTRAL, ())
    field["color"] = {"mode": "palette-classic"}
    field |= {name: v for name, v in (("min", minimum), ("max", maximum)) if v is not None}
    if log:
        field.pop("min", None)
    field["custom"] = {
        "drawStyle": "line",
        "fillOpacity": 30 if stack else 0,
        "lineWidth": 1,
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if thresholds else "off"},
    }
    options = {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "sortBy": "Max",
            "sortDesc": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return make_panel(
        "timeseries", title, description, _targets(queries), width, rows, field, options
    )


def state_timeline(
    title: str,
    description: str,
    queries: Queries,
    *,
    mappings: Sequence[dict[str, Any]] = (),
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    unit: str = "none",
    width: int = 24,
    rows: int = 10,
) -> Panel:
    """A bar per series, coloured by its state."""
    field = _field(unit, thresholds, mappings)
    field["color"] = {"mode": "thresholds"}
    field["custom"] = {"fillOpacity": 75, "lineWidth": 0, "spanNulls": False}
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "perPage": 32,
        "rowHeight": 0.85,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    kind = "state-timeline"
    return make_panel(kind, title, description, _targets(queries), width, rows, field, options)


def heatmap(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "s",
    width: int = 12,
    rows: int = 8,
) -> Panel:
    """A histogram over time; the query yields one series per `le`."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    field = {"unit": unit, "custom": {"scaleDistribution": {"type": "linear"}}}
    targets = [Target(expr=expand(expr), legendFormat="{{le}}", format="heatmap", refId="A")]
    return make_panel("heatmap", title, description, targets, width, rows, field, options)


def bar_gauge(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    minimum: float = 0,
    maximum: float | None = None,
    width: int = 8,
    rows: int = 8,
) -> Panel:
    """A bar per series, as of the end of the time range."""
    field = _field(unit, thresholds, ())
    field["min"] = minimum
    if maximum is not None:
        field["max"] = maximum
    options = {
        "displayMode": "basic",
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    targets = _targets(queries, instant=True)
    return make_panel("bargauge", title, description, targets, width, rows, field, options)


def text(title: str, content: str, *, width: int = 24, rows: int = 4) -> Panel:
    """Markdown for whoever opens the board for the first time."""
    options = {
        "mode": "markdown",
        "content": content,
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
    }
    return make_panel("text", title, "How to read this board.", [], width, rows, {}, options)


def make_panel(
    kind: str,
    title: str,
    description: str,
    targets: list[Target],
    width: int,
    rows: int,
    field: dict[str, Any],
    options: dict[str, Any],
) -> Panel:
    """A panel out of its parts."""
    return Panel(
        kind=kind,
        title=title,
        description=description,
        targets=targets,
        width=width,
        rows=rows,
        field=field,
        options=options,
    )


def _targets(queries: Queries, *, instant: bool = False) -> list[Target]:
    if isinstance(queries, str):
        queries = Query(queries)
    if isinstance(queries, Query):
        queries = (queries,)
    return [
        Target(
            expr=expand(query.expr),
            legendFormat=query.legend,
            format="time_series",
            instant=instant,
            refId=ref,
        )
        for ref, query in zip(string.ascii_uppercase, queries, strict=False)
    ]


def _field(
    unit: str, thresholds: tuple[Threshold, ...], mappings: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "unit": unit,
        "color": {"mode": "thresholds"},
        "mappings": list(mappings),
        "thresholds": threshold_json(thresholds),
    }
