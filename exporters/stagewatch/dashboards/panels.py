"""One factory per kind of panel; every one takes a title, a description, and its queries.

A panel has only the options that differ from the defaults of Grafana 11 and later.  What its query
says already need not be said again: unless they are given, `unit_of` reads the unit from the names
of its metrics, and `labels_of` the names of lines, and the keys of a table, from its aggregation.

A query may use short words for label filters, so that it honours the variables of its board:
`gpu_up{GPU, mig=""}` becomes `gpu_up{cluster=~"$cluster", node=~"$node", gpu=~"$gpu", mig=""}`;
and `[RATE]` is the range of a rate.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stagewatch.dashboards.look import (
    GPU_HOURS,
    NEUTRAL,
    RED,
    SEVERITIES,
    Threshold,
    steps,
    threshold_json,
)
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
MOST_SERIES = 300
"""Most series of a panel: more make a browser slow, and nobody reads them."""
_ONE_DECIMAL = ("percentunit", GPU_HOURS)
_UNITS = {
    "seconds": "s",
    "ratio": "percentunit",
    "bytes": "bytes",
    "bytes_total": "Bps",
    "celsius": "celsius",
    "watts": "watt",
    "hertz": "hertz",
}
"""Grafana's units by the end of a metric's name; of a counter as its rate."""
_NAMED_UNIT = re.compile(r"\w*[:_](" + "|".join(_UNITS) + r")\{")
_LEAST_SCALE = {"percentunit": 0.01, "s": 0.001}
"""The least maximum of an axis, by unit; otherwise 1.  For zeros alone, Grafana would take 100."""


def expand(expression: str) -> str:
    """The expression with its filter words replaced, on one line."""
    filled = _FILTER_WORD.sub(lambda word: "{" + _FILTERS[word[1]], expression)
    filled = filled.replace("[RATE]", "[$__rate_interval]")
    return " ".join(filled.split())


def unit_of(expression: str) -> str:
    """The only unit in which the names of its metrics end; "short" if there is no such unit."""
    if expression.lstrip().startswith("count") or " / " in expression:
        return "short"
    names = re.findall(r"[\w:]+\{", expression)
    units = {_UNITS[unit[1]] if (unit := _NAMED_UNIT.search(name)) else "short" for name in names}
    return units.pop() if len(units) == 1 else "short"


def labels_of(expression: str) -> list[str]:
    """The labels that an expression aggregates by; none if it does not."""
    kept = re.search(r"by \(([^)]*)\)", expression)
    return kept[1].split(", ") if kept else []


_BOARD_OF = {"node": "stagewatch-gpu-health", "job_id": "stagewatch-job"}
"""The board for a label: cells and lines with the label link to it, with time range and cluster."""
_RUNBOOK = {
    "title": "Open the runbook",
    "url": "${runbooks:raw}/${__value.text}.md",
    "targetBlank": True,  # it is no page of Grafana: the board stays open
}
_PIXELS = {"alertname": 260, "evidence": 130, "rank": 60, "stage": 120}
"""The widths of some label columns, which show the longest name of an alert, and of a stage."""


def worst(expr: str, by: str = "", *, most: int = 20, least: bool = False) -> str:
    """The `most` series of a range query that are the largest at the end of its time range.

    `expr`: one aggregation.  `by`: an expression with the same labels that chooses the series
    instead, such as the age of a rank's progress; `least` chooses the smallest.  A plain `topk`
    would choose again at each step, and so return many more series.  Of equal values any may be
    chosen: if most are zero, use `above_zero`.
    """
    at_end = re.sub(r"(\{[^{}]*\}(?:\[[^]]*\])?)", r"\1 @ end()", by or expr)
    return f"{expr} and {'bottomk' if least else 'topk'}({most}, {at_end})"


def above_zero(expr: str, whole: str, name: str, *, most: int = 20) -> str:
    """The largest series that are above zero at the end of the time range, and one for the whole.

    `whole`: an expression for all together, which shows as the node `name`: it is zero without
    errors, and absent if nothing is measured.
    """
    largest = worst(expr, f"{expr} > 0", most=most)
    return f'{largest} or label_replace({whole}, "node", "{name}", "", "")'


@dataclass(frozen=True, slots=True)
class Query:
    """An expression (filter words allowed) and the name of its series; by default their labels."""

    expr: str
    legend: str = ""


Queries = str | Sequence[Query]
"""One expression, whose legend is the next argument, or several queries."""


def stat(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "",
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    mappings: Sequence[dict[str, Any]] = (),
    width: int = 4,
    rows: int = 4,
) -> Panel:
    """One number in front of a graph of its recent past."""
    unit = unit or unit_of(expr)
    field = _field(unit, thresholds, mappings)
    if unit in _ONE_DECIMAL:
        field["decimals"] = 1
    return _panel("stat", title, description, _targets([Query(expr)]), width, rows, field, {})


def count(
    title: str, description: str, expr: str, color: str = RED, *, width: int = 4, rows: int = 4
) -> Panel:
    """How many series an expression yields: zero is green, and one is of that colour."""
    counted = f"count({expr}) or vector(0)"
    found = steps((1, color))
    return stat(title, description, counted, thresholds=found, width=width, rows=rows)


def timeseries(
    title: str,
    description: str,
    queries: Queries,
    legend: str = "",
    *,
    unit: str = "",
    thresholds: tuple[Threshold, ...] = (),
    stack: bool = False,
    log: bool = False,
    minimum: float | None = 0,
    maximum: float | None = None,
    colors: Mapping[str, str] | None = None,
    width: int = 12,
    rows: int = 8,
) -> Panel:
    """Lines over time; thresholds, if there are any, are lines too.

    `colors` are those of series by the last word of their legend.
    """
    named = _named(queries, legend)
    unit = unit or unit_of(named[0].expr)
    field = _field(unit, thresholds or NEUTRAL, ())
    field["color"] = {"mode": "palette-classic"}
    field |= {name: v for name, v in (("min", minimum), ("max", maximum)) if v is not None}
    field["custom"] = {}
    if log:
        field.pop("min", None)
        field["custom"]["scaleDistribution"] = {"type": "log", "log": 10}
    if stack:
        field["custom"] |= {"fillOpacity": 30, "stacking": {"mode": "normal", "group": "A"}}
    if thresholds:
        field["custom"]["thresholdsStyle"] = {"mode": "dashed"}
    if minimum == 0 and maximum is None and not log:
        field["custom"]["axisSoftMax"] = _LEAST_SCALE.get(unit, 1)
    options = {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "sortBy": "Max",
            "sortDesc": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    targets = _targets(named)
    field["links"] = _links(targets)
    panel = _panel("timeseries", title, description, targets, width, rows, field, options)
    panel.overrides = [
        {
            "matcher": {"id": "byRegexp", "options": f"/(^| ){word}$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for word, color in (colors or {}).items()
    ]
    return panel


def state_timeline(
    title: str,
    description: str,
    queries: Queries,
    legend: str = "",
    *,
    mappings: Sequence[dict[str, Any]] = (),
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    width: int = 24,
    rows: int = 10,
) -> Panel:
    """A bar per series, coloured by its state."""
    field = _field("none", thresholds, mappings)
    targets = _targets(_named(queries, legend))
    field["links"] = _links(targets)
    options = {"perPage": 32}
    return _panel("state-timeline", title, description, targets, width, rows, field, options)


def heatmap(title: str, description: str, expr: str, *, width: int = 12) -> Panel:
    """A histogram of seconds over time; the query yields one series per `le`."""
    targets = _targets([Query(expr, "{{le}}")], format="heatmap")
    options = {"yAxis": {"unit": "s"}}
    return _panel("heatmap", title, description, targets, width, 8, {"unit": "s"}, options)


def distribution(
    title: str,
    description: str,
    expr: str,
    *,
    step: float,
    limits: tuple[float, float],
    unit: str,
    width: int = 12,
) -> Panel:
    """The number of the expression's series in each interval of `step`, over time.

    Values beyond `limits` count at the limits.  Prometheus sorts series by label as text, so all
    limits need the same number of digits.  Intervals without a series have zero, since Grafana
    would draw the other intervals as neighbours.
    """
    low, high = limits
    rounded = f"round(clamp({expr}, {low:g}, {high:g}), {step:g})"
    zeros = " or ".join(
        f'label_replace(vector(0), "value", "{low + number * step:g}", "", "")'
        for number in range(round((high - low) / step) + 1)
    )
    counted = f'(count_values("value", {rounded}) or {zeros}) and on () group({expr})'
    panel = heatmap(title, description, counted, width=width)
    panel.targets[0].format = "time_series"
    panel.targets[0].legendFormat = "{{value}}"
    panel.field["unit"] = "short"
    panel.options["yAxis"]["unit"] = unit
    return panel


def heat_rows(title: str, description: str, expr: str, *, unit: str, width: int = 12) -> Panel:
    """A row of colours over time for each role and rank that the expression returns."""
    panel = heatmap(title, description, expr, width=width)
    panel.targets[0].format = "time_series"
    panel.targets[0].legendFormat = "{{role}} {{rank}}"
    panel.field["unit"] = unit
    panel.options["filterValues"] = {}  # a rank that does no work at all is a row as well
    panel.options["yAxis"]["unit"] = "string"
    return panel


def bar_gauge(
    title: str,
    description: str,
    queries: Queries,
    legend: str = "",
    *,
    unit: str = "",
    thresholds: tuple[Threshold, ...] = NEUTRAL,
    few: bool = False,
    width: int = 8,
) -> Panel:
    """A bar per series, as of the end of the time range.

    The text is as high as a bar; of a `few` bars, which are high, it is that of other panels.
    """
    named = _named(queries, legend)
    field = _field(unit or unit_of(named[0].expr), thresholds, ()) | {"min": 0}
    targets = _targets(named, instant=True)
    options: dict[str, Any] = {"displayMode": "basic", "orientation": "horizontal"}
    if few:
        options["text"] = {"titleSize": 14, "valueSize": 20}
    return _panel("bargauge", title, description, targets, width, 8, field, options)


def text(title: str, content: str) -> Panel:
    """Markdown for people who open the board for the first time."""
    options = {"mode": "markdown", "content": content}
    return _panel("text", title, "How to read this board.", [], 24, 4, {}, options)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: it shows the value of a query, joined by the table's keys."""

    title: str
    expr: str
    unit: str = ""
    thresholds: tuple[Threshold, ...] = ()
    mappings: Sequence[dict[str, Any]] = ()
    decimals: int | None = None


_TITLES = {
    "alertname": "Alert",
    "dp_rank": "Replica",
    "expected_failure_stage": "Expected to surface in",
    "fault_type": "Fault",
    "gpu": "GPU",
    "gpu_type": "Type",
    "instance": "Address",
    "job_id": "Job",
    "pci_bus_id": "Bus",
    "pid": "PID",
    "protocol": "Transport",
    "reason_class": "Class",
    "target_worker": "Target",
    "uuid": "UUID",
    "vbios": "VBIOS",
    "xid": "XID",
}
"""The titles of label columns, if they are not the label with a capital."""


def table(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    titles: Mapping[str, str] = MappingProxyType({}),
    sort: str | Sequence[tuple[str, bool]] = "",
    order: str | None = None,
    lacking: str = "",
    width: int = 24,
    rows: int = 8,
) -> Panel:
    """A table: rows by the labels that the first column aggregates by, a column for each query.

    `titles`: titles of labels for this table only.  `sort`: the title of a column, the largest
    values first; or several titles, each with whether the largest come first.  `order`: the title
    of a column, by default that of `sort`, or an expression by labels that all columns have: only
    the rows with the largest values are queried; all if it is empty.  Nodes and jobs link to their
    boards, and alerts to their runbooks, for which the board needs the variable `runbooks`.
    """
    keys = {
        label: titles.get(label) or _TITLES.get(label, label.capitalize())
        for label in labels_of(columns[0].expr)
    }
    if not all(labels_of(column.expr) for column in columns):
        raise ValueError(f"a column of a table aggregates by the table's labels: {title}")
    sorts = [(sort, True)] if isinstance(sort, str) and sort else sort or []
    if order is None:
        order = sort if isinstance(sort, str) else ""
    queries = [Query(expr) for expr in _largest(columns, order)]
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
    if "severity" in keys:
        overrides.append(_override(keys["severity"], _coloured(SEVERITIES)))
    overrides += [
        _override(keys[label], {"links": [_link(label, "__value.text")]})
        for label in _BOARD_OF
        if label in keys
    ]
    if "alertname" in keys:
        overrides.append(_override(keys["alertname"], {"links": [_RUNBOOK]}))
    overrides += [
        _override(keys[label], {"custom.width": pixels})
        for label, pixels in _PIXELS.items()
        if label in keys
    ]
    options = {"sortBy": [{"displayName": name, "desc": down} for name, down in sorts]}
    field: dict[str, Any] = {"custom": {"filterable": True, "minWidth": 90}}
    if lacking:
        field["noValue"] = lacking
    panel = _panel("table", title, description, targets, width, rows, field, options)
    panel.overrides = overrides
    panel.transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organise},
    ]
    return panel


def _largest(columns: Sequence[Column], order: str) -> list[str]:
    """The queries of a table, limited to rows where `order` is largest: with few columns, 50."""
    if not order:
        return [column.expr for column in columns]
    by_title = {column.title: column.expr for column in columns}
    chosen = by_title.get(order, order)
    top = f"topk({min(50, MOST_SERIES // len(columns))}, {chosen})"

    def same(expr: str) -> str:
        return ", ".join(label for label in labels_of(expr) if label in labels_of(chosen))

    return [
        top if column.title == order else f"({column.expr}) and on ({same(column.expr)}) {top}"
        for column in columns
    ]


def _links(targets: Sequence[Target]) -> list[dict[str, str]]:
    """Links to the boards of the nodes and jobs in the names of a panel's lines."""
    legends = "".join(target.legendFormat for target in targets)
    named = [label for label in _BOARD_OF if f"{{{{{label}}}}}" in legends]
    return [_link(label, f"__field.labels.{label}") for label in named]


def _link(label: str, value: str) -> dict[str, str]:
    kept = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
    url = f"/d/{_BOARD_OF[label]}?{kept}&var-{label}=${{{value}}}"
    return {"title": f"Open the board of the {'job' if label == 'job_id' else label}", "url": url}


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


def _named(queries: Queries, legend: str) -> list[Query]:
    """The queries with names for their series: the given ones, else those of the labels."""
    several = [Query(queries, legend)] if isinstance(queries, str) else queries
    return [
        Query(
            each.expr, each.legend or " ".join(f"{{{{{label}}}}}" for label in labels_of(each.expr))
        )
        for each in several
    ]


def _targets(
    queries: Sequence[Query], *, instant: bool = False, format: str = "time_series"
) -> list[Target]:
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
    properties: dict[str, Any] = {"unit": column.unit or unit_of(column.expr)}
    if column.decimals is not None:
        properties["decimals"] = column.decimals
    if column.mappings:
        properties["mappings"] = list(column.mappings)
    if column.thresholds or column.mappings:
        properties["custom.cellOptions"] = {"type": "color-text"}
    if column.thresholds:
        properties["thresholds"] = threshold_json(column.thresholds)
    return properties


def _coloured(mappings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"mappings": list(mappings), "custom.cellOptions": {"type": "color-text"}}


def _override(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": id, "value": value} for id, value in properties.items()],
    }
