"""One factory per kind of panel; every one takes a title, a description, and its queries.

A query may use short words for label filters, so that it honours the variables of its board:
`gpu_up{GPU, mig=""}` becomes `gpu_up{cluster=~"$cluster", node=~"$node", gpu=~"$gpu", mig=""}`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stagewatch.dashboards.look import NEUTRAL, Threshold, threshold_json
from stagewatch.dashboards.modern import Panel, Target

_CLUSTER = 'cluster=~"$cluster"'
_NODE = f'{_CLUSTER}, node=~"$node"'
_FILTERS = {
    "CLUSTER": _CLUSTER,
    "PARTITION": f'{_CLUSTER}, partition=~"$partition"',
    "NODE": _NODE,
    "GPU": f'{_NODE}, gpu=~"$gpu"',
    "JOB": f'{_CLUSTER}, job_id=~"$job_id"',
    "RANK": f'{_NODE}, job_id=~"$job_id"',
}
_FILTER_WORD = re.compile(r"\{(" + "|".join(_FILTERS) + r")\b")
_LAST_VALUE = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def expand(expression: str) -> str:
    """The expression with its filter words replaced, on one line."""
    filled = _FILTER_WORD.sub(lambda word: "{" + _FILTERS[word[1]], expression)
    return " ".join(filled.split())


def _path_to_board(uid: str, variable: str) -> str:
    kept = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
    return f"/d/{uid}?{kept}&var-{variable}=${{__value.text}}"


TO_NODE = _path_to_board("stagewatch-gpu-health", "node")
"""The path to the board of the node in a table's cell, with the same time range and cluster."""
TO_JOB = _path_to_board("stagewatch-job", "job_id")


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
) -> Panel:
    """One number in front of a graph of its recent past."""
    field = _field(unit, thresholds, mappings)
    options = {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _LAST_VALUE,
        "textMode": "auto",
    }
    targets = _targets(queries)
    return _panel("stat", title, description, targets, width, rows, field, options)


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
    """Lines over time; thresholds, if there are any, are lines too."""
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
    targets = _targets(queries)
    return _panel("timeseries", title, description, targets, width, rows, field, options)


def state_timeline(
    title: str,
    description: str,
    queries: Queries,
    *,
    mappings: Sequence[dict[str, Any]] = (),
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    width: int = 24,
    rows: int = 10,
) -> Panel:
    """A bar per series, coloured by its state."""
    field = _field("none", thresholds, mappings)
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
    targets = _targets(queries)
    return _panel("state-timeline", title, description, targets, width, rows, field, options)


def heatmap(title: str, description: str, expr: str, *, width: int = 12) -> Panel:
    """A histogram of seconds over time; the query yields one series per `le`."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "s"},
    }
    field = {"unit": "s", "custom": {"scaleDistribution": {"type": "linear"}}}
    targets = _targets(Query(expr, "{{le}}"), format="heatmap")
    return _panel("heatmap", title, description, targets, width, 8, field, options)


def bar_gauge(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    width: int = 8,
) -> Panel:
    """A bar per series, as of the end of the time range."""
    field = _field(unit, thresholds, ()) | {"min": 0}
    options = {
        "displayMode": "basic",
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": _LAST_VALUE,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    targets = _targets(queries, instant=True)
    return _panel("bargauge", title, description, targets, width, 8, field, options)


def text(title: str, content: str) -> Panel:
    """Markdown for whoever opens the board for the first time."""
    options = {
        "mode": "markdown",
        "content": content,
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
    }
    return _panel("text", title, "How to read this board.", [], 24, 4, {}, options)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: it shows the value of a query, joined by the table's keys."""

    title: str
    expr: str
    unit: str = "short"
    thresholds: tuple[Threshold, ...] = ()
    mappings: tuple[dict[str, Any], ...] = ()
    decimals: int | None = None


def table(
    title: str,
    description: str,
    keys: Mapping[str, str],
    columns: Sequence[Column],
    *,
    links: Mapping[str, str] | None = None,
    sort: str = "",
    width: int = 24,
    rows: int = 8,
) -> Panel:
    """Rows by the labels in `keys` (label -> title), a column for each query.

    `links` maps a label to the path of the board that its cells lead to; `sort` is a column's
    title, its largest values first.
    """
    queries = [Query(column.expr) for column in columns]
    targets = _targets(queries, instant=True, format="table")
    values = {
        f"Value #{target.refId}": column for target, column in zip(targets, columns, strict=True)
    }
    if len(columns) == 1:  # Grafana then leaves the letter out
        values["Value"] = columns[0]
    names = {label: name for label, name in keys.items() if label != name}
    names |= {field: column.title for field, column in values.items()}
    organise = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate((*keys, *values))},
        "renameByName": names,
    }
    overrides = [_override(column.title, _cell(column)) for column in columns]
    overrides += [
        _override(keys[label], {"links": [{"title": "Open", "url": url}]})
        for label, url in (links or {}).items()
    ]
    options = {
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "showHeader": True,
        "sortBy": [{"displayName": sort, "desc": True}] if sort else [],
    }
    field = {"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}}
    panel = _panel("table", title, description, targets, width, rows, field, options)
    panel.overrides = overrides
    panel.transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organise},
    ]
    return panel


def _panel(
    kind: str,
    title: str,
    description: str,
    targets: list[Target],
    width: int,
    rows: int,
    field: dict[str, Any],
    options: dict[str, Any],
) -> Panel:
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


def _targets(
    queries: Queries, *, instant: bool = False, format: str = "time_series"
) -> list[Target]:
    if isinstance(queries, str):
        queries = Query(queries)
    if isinstance(queries, Query):
        queries = (queries,)
    return [
        Target(
            expr=expand(query.expr),
            legendFormat=query.legend,
            format=format,
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


def _cell(column: Column) -> dict[str, Any]:
    properties: dict[str, Any] = {"unit": column.unit}
    if column.decimals is not None:
        properties["decimals"] = column.decimals
    if column.mappings:
        properties["mappings"] = list(column.mappings)
    if column.thresholds or column.mappings:
        properties["custom.cellOptions"] = {"type": "color-text"}
    if column.thresholds:
        properties["thresholds"] = threshold_json(column.thresholds)
    return properties


def _override(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": id, "value": value} for id, value in properties.items()],
    }
