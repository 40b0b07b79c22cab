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

from stagewatch.dashboards.look import NEUTRAL, Thresholds

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

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

Panel = dict[str, Any]
"""A panel's JSON, with only the keys whose values are not Grafana's own."""


def stat(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: Thresholds = NEUTRAL,
    mappings: Sequence[dict[str, Any]] = (),
    width: int = 4,
    rows: int = 4,
) -> Panel:
    """One number in front of a graph of its recent past."""
    field = _field(unit, thresholds, mappings)
    targets = _targets(queries)
    return _panel("stat", title, description, (width, rows), {}, targets, field)


def timeseries(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: Thresholds = (),
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
    field["custom"] = {}
    if log:
        field["custom"]["scaleDistribution"] = {"type": "log", "log": 10}
    if stack:
        field["custom"] |= {"fillOpacity": 30, "stacking": {"mode": "normal", "group": "A"}}
    if thresholds:
        field["custom"]["thresholdsStyle"] = {"mode": "dashed"}
    options = {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "sortBy": "Max",
            "sortDesc": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    targets = _targets(queries)
    return _panel("timeseries", title, description, (width, rows), options, targets, field)


def state_timeline(
    title: str,
    description: str,
    queries: Queries,
    *,
    mappings: Sequence[dict[str, Any]] = (),
    thresholds: Thresholds = NEUTRAL,
    width: int = 24,
    rows: int = 10,
) -> Panel:
    """A bar per series, coloured by its state."""
    field = _field("none", thresholds, mappings)
    targets = _targets(queries)
    options = {"perPage": 32}
    return _panel("state-timeline", title, description, (width, rows), options, targets, field)


def heatmap(title: str, description: str, expr: str, *, width: int = 12) -> Panel:
    """A histogram of seconds over time; the query yields one series per `le`."""
    options = {"yAxis": {"unit": "s"}}
    field = {"unit": "s"}
    targets = _targets(Query(expr, "{{le}}"), format="heatmap")
    return _panel("heatmap", title, description, (width, 8), options, targets, field)


def bar_gauge(
    title: str,
    description: str,
    queries: Queries,
    *,
    unit: str = "short",
    thresholds: Thresholds = NEUTRAL,
    width: int = 8,
) -> Panel:
    """A bar per series, as of the end of the time range."""
    field = _field(unit, thresholds, ()) | {"min": 0}
    options = {"displayMode": "basic", "orientation": "horizontal"}
    targets = _targets(queries, instant=True)
    return _panel("bargauge", title, description, (width, 8), options, targets, field)


def text(title: str, content: str) -> Panel:
    """Markdown for whoever opens the board for the first time."""
    options = {"mode": "markdown", "content": content}
    return _panel("text", title, "How to read this board.", (24, 4), options)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: it shows the value of a query, joined by the table's keys."""

    title: str
    expr: str
    unit: str = "short"
    thresholds: Thresholds = ()
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
        f"Value #{target['refId']}": column for target, column in zip(targets, columns, strict=True)
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
    options = {"sortBy": [{"displayName": sort, "desc": True}] if sort else []}
    field = {"custom": {"filterable": True}}
    panel = _panel("table", title, description, (width, rows), options, targets, field)
    panel["fieldConfig"]["overrides"] = overrides
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organise},
    ]
    return panel


def _panel(
    kind: str,
    title: str,
    description: str,
    size: tuple[int, int],
    options: dict[str, Any],
    targets: Sequence[dict[str, Any]] = (),
    field: Mapping[str, Any] | None = None,
) -> Panel:
    """A panel of a width and a height; the board gives it its place and its id."""
    panel: Panel = {"type": kind, "title": title, "description": description, "options": options}
    panel["gridPos"] = {"w": size[0], "h": size[1]}
    if targets:
        panel |= {"datasource": DATASOURCE, "targets": targets}
        panel["fieldConfig"] = {"defaults": field, "overrides": []}
    return panel


def _targets(
    queries: Queries, *, instant: bool = False, format: str = "time_series"
) -> list[dict[str, Any]]:
    """Queries; `instant` for what is shown as of the end of the time range."""
    if isinstance(queries, str):
        queries = Query(queries)
    return [
        {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": expand(query.expr),
            "format": format,
            "instant": instant,
            "range": not instant,
            "legendFormat": query.legend or "__auto",
            "refId": letter,
        }
        for letter, query in zip(
            string.ascii_uppercase,
            (queries,) if isinstance(queries, Query) else queries,
            strict=False,
        )
    ]


def _field(unit: str, thresholds: Thresholds, mappings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "unit": unit,
        "color": {"mode": "thresholds"},
        "mappings": list(mappings),
        "thresholds": {"mode": "absolute", "steps": thresholds},
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
        properties["thresholds"] = {"mode": "absolute", "steps": column.thresholds}
    return properties


def _override(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": id, "value": value} for id, value in properties.items()],
    }
