"""Tables: rows by labels, a column for each query."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stagewatch.dashboards.filters import expand
from stagewatch.dashboards.look import Threshold, threshold_json
from stagewatch.dashboards.modern import Panel, Target
from stagewatch.dashboards.panels import make_panel


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a query whose value it shows, joined by the table's keys."""

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
    targets = [
        Target(expr=expand(column.expr), format="table", instant=True, refId=ref)
        for ref, column in zip(string.ascii_uppercase, columns, strict=False)
    ]
    values = {
        f"Value #{ref}": column
        for ref, column in zip(string.ascii_uppercase, columns, strict=False)
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
    panel = make_panel("table", title, description, targets, width, rows, field, options)
    panel.overrides = overrides
    panel.transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organise},
    ]
    return panel


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
