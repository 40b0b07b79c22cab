"""grafanalib's classes, which here write the JSON that Grafana 11 and later keeps on disk.

grafanalib 0.7.1 writes `schemaVersion` 12, at which Grafana runs every migration since 2016, one of
which overwrites `graphTooltip`; it also sets `maxDataPoints` 100 and `intervalFactor` 2, which turn
six hours into buckets of 3.6 minutes and hide short stages.
"""

from __future__ import annotations

from typing import Any

import attr
from grafanalib import core

SCHEMA_VERSION = 39
_fields: Any = attr.s(auto_attribs=True, kw_only=True)
"""As `Any`, since grafanalib has no types: mypy would miss the fields of its classes."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@_fields
class Panel(core.Panel):  # type: ignore[misc]
    """Any panel: `kind` is Grafana's name of the visualisation."""

    kind: str
    options: dict[str, Any] = attr.Factory(dict)
    field: dict[str, Any] = attr.Factory(dict)
    """`fieldConfig.defaults`."""
    overrides: list[dict[str, Any]] = attr.Factory(list)
    width: int = 8
    rows: int = 8

    def to_json_data(self) -> dict[str, Any]:
        """Only the keys that Grafana itself would write."""
        json: dict[str, Any] = {
            "type": self.kind,
            "id": self.id,
            "title": self.title,
            "description": self.description,
            "gridPos": self.gridPos,
            "options": self.options,
        }
        if self.targets:
            json["datasource"] = DATASOURCE
            json["fieldConfig"] = {"defaults": self.field, "overrides": self.overrides}
            json["targets"] = self.targets
        if self.transformations:
            json["transformations"] = self.transformations
        return json


@_fields
class Row(core.RowPanel):  # type: ignore[misc]
    """A row; a collapsed one holds its panels and asks nothing until it is opened."""

    def to_json_data(self) -> dict[str, Any]:
        """Only the keys that Grafana itself would write."""
        return {
            "type": "row",
            "id": self.id,
            "title": self.title,
            "collapsed": self.collapsed,
            "gridPos": self.gridPos,
            "panels": self.panels,
        }


@_fields
class Target(core.Target):  # type: ignore[misc]
    """One query; `instant` for what is shown as of the end of the time range."""

    def to_json_data(self) -> dict[str, Any]:
        """Only the keys that Grafana itself would write."""
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": self.format,
            "instant": self.instant,
            "range": not self.instant,
            "legendFormat": self.legendFormat or "__auto",
            "refId": self.refId,
        }


@_fields
class Variable(core.Template):  # type: ignore[misc]
    """A variable; the first is always the data source."""

    description: str = ""

    def to_json_data(self) -> dict[str, Any]:
        """Only the keys that Grafana itself would write."""
        json: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "description": self.description,
            "type": self.type,
            "hide": self.hide,
            "refresh": self.refresh,
            "regex": self.regex or "",
            "options": [],
            "current": {},
            "multi": self.multi,
            "includeAll": self.includeAll,
        }
        if self.type == "datasource":
            return json | {"query": self.query}
        json["datasource"] = DATASOURCE
        json["definition"] = self.query
        json["query"] = {"query": self.query, "refId": f"variable-{self.name}"}
        json["sort"] = self.sort
        if self.includeAll:
            json["allValue"] = self.allValue
            json["current"] = {"text": ["All"], "value": ["$__all"]}
        return json


@_fields
class Dashboard(core.Dashboard):  # type: ignore[misc]
    """A board in the modern shape: panels only, no rows of old."""

    picker: dict[str, Any] = attr.Factory(dict)

    def to_json_data(self) -> dict[str, Any]:
        """Only the keys that Grafana itself would write."""
        return {
            "annotations": self.annotations,
            "description": self.description,
            "editable": self.editable,
            "fiscalYearStartMonth": 0,
            "graphTooltip": self.graphTooltip,
            "id": None,
            "links": self.links,
            "panels": self.panels,
            "refresh": self.refresh,
            "schemaVersion": SCHEMA_VERSION,
            "tags": self.tags,
            "templating": self.templating,
            "time": self.time,
            "timepicker": self.picker,
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        }
