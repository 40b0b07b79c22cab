"""Builds a board: variables, annotations, links, and panels that flow into rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stagewatch.dashboards.panels import DATASOURCE, Json, Panel, expand, text

SCHEMA_VERSION = 39
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

_STEP = "10s"
"""The step of annotations; Grafana's default of a minute would miss shorter events."""

_ALPHABETICAL, _NUMERICAL = 1, 3
_ON_TIME_RANGE = 2
# A node in several partitions has them in one label, with commas between.
_NODE_AGENTS = 'up{job="stagewatch", cluster=~"$cluster", partition=~"(|.*,)($partition)(|,.*)"}'
_VARIABLES = {
    "cluster": (
        "Clusters that agents are scraped from.",
        'label_values(up{job=~"stagewatch.*"}, cluster)',
    ),
    "partition": (
        "Slurm partitions; also narrows the list of nodes, if nodes carry the label.",
        'label_values(slurm_nodes{cluster=~"$cluster"}, partition)',
    ),
    "node": ("Nodes with an agent.", f"label_values({_NODE_AGENTS}, node)"),
    "gpu": (
        "NVML index of the GPU.",
        'label_values(gpu_info{cluster=~"$cluster", node=~"$node"}, gpu)',
    ),
    "job_id": (
        "Jobs that had ranks or GPUs in this time range.",
        'label_values({__name__=~"rl_rank_info|gpu:job:info|slurm_job_info",'
        ' cluster=~"$cluster"}, job_id)',
    ),
}
"""Description and query by name, always in this order, so that links carry them between boards."""


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading; a collapsed one asks nothing until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


def section(title: str, *panels: Panel, lacking: str = "", collapsed: bool = False) -> Section:
    """Panels under a heading; `lacking` is what a panel without data says instead of "No data"."""
    for panel in panels:
        if lacking:
            panel.defaults.setdefault("noValue", lacking)
    return Section(title, panels, collapsed)


def board(
    title: str,
    *,
    uid: str,
    description: str,
    guide: str,
    variables_used: Iterable[str],
    sections: Sequence[Section],
) -> Json:
    """A whole board; `guide` is Markdown that explains how to read it."""
    dashboards: Json = {"type": "dashboards", "title": "", "tooltip": "", "url": "", "tags": [TAG]}
    dashboards |= {"icon": "external link", "asDropdown": False, "targetBlank": False}
    explained = Section(
        "How to read this board", (text("How to read this board", guide),), collapsed=True
    )
    return {
        "title": title,
        "uid": uid,
        "id": None,
        "version": 1,
        "schemaVersion": SCHEMA_VERSION,
        "description": description,
        "tags": [TAG],
        "editable": True,
        "refresh": "30s",
        "graphTooltip": 1,  # one crosshair over all panels
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "timepicker": {
            "refresh_intervals": ["10s", "30s", "1m", "5m", "15m", "1h"],
            "quick_ranges": [
                {"display": name, "from": start, "to": "now"} for name, start in _RANGES
            ],
        },
        "templating": {"list": _variables(variables_used)},
        "annotations": {"list": _annotations()},
        "links": [dashboards | {"keepTime": True, "includeVars": True}],
        "panels": _lay_out([explained, *sections]),
    }


def _variables(names: Iterable[str]) -> list[Json]:
    """The data source, the cluster, and those named, in the order of every board."""
    wanted = {"cluster", *names}
    if "node" in wanted:
        wanted.add("partition")  # the query of the nodes uses it
    source = _variable("datasource", "Data source", "The Prometheus that scrapes the agents.")
    source |= {"type": "datasource", "query": "prometheus", "refresh": 1}
    return [source, *(_asked(name) for name in _VARIABLES if name in wanted)]


def _asked(name: str) -> Json:
    """A variable whose values the data source knows; All stands for all of most."""
    description, query = _VARIABLES[name]
    label = {"job_id": "Job", "gpu": "GPU"}.get(name, name.capitalize())
    variable = _variable(name, label, description) | {
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": _ON_TIME_RANGE,
        "sort": _NUMERICAL if name in ("gpu", "job_id") else _ALPHABETICAL,
    }
    if name == "job_id":
        return variable
    everything = {"text": ["All"], "value": ["$__all"]}
    return variable | {
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": everything,
    }


def _variable(name: str, label: str, description: str) -> Json:
    return {
        "name": name,
        "label": label,
        "description": description,
        "hide": 0,
        "regex": "",
        "options": [],
        "current": {},
        "multi": False,
        "includeAll": False,
    }


def _annotations() -> list[Json]:
    """The events that every panel shows: injected faults, alerts (detection) and recoveries.

    One for all nodes and jobs that share an event: the panels tell which.
    Only samples above 0 become events, and samples at most one step apart merge into a region.
    """
    return [
        _annotation(
            "Faults injected",
            "max by (id, fault_type, target_worker, expected_failure_stage, scenario)"
            " (fault_injection_active{CLUSTER})",
            color="red",
            title="{{fault_type}} on {{target_worker}}",
            text="Injected: {{id}}, expected to surface in {{expected_failure_stage}}",
            tags="fault_type,target_worker,scenario",
        ),
        _annotation(
            "Alerts",
            "count by (alertname, severity)"
            ' (ALERTS{CLUSTER, alertstate="firing", severity=~"critical|warning", notify=""})',
            color="orange",
            title="{{alertname}}",
            text="Detected: {{severity}}",
            tags="alertname,severity",
        ),
        _annotation(
            "Nodes back",
            "count by (kind) (node:recovery:event{CLUSTER})",
            color="green",
            title="Nodes are back",
            text="Recovered from: {{kind}}",
            tags="kind",
        ),
        _annotation(
            "Jobs back",
            "count by (role) (job:recovery:event{CLUSTER})",
            color="green",
            title="Jobs go on",
            text="Recovered: {{role}} ranks make progress again",
            tags="role",
        ),
    ]


def _annotation(name: str, expr: str, *, color: str, title: str, text: str, tags: str) -> Json:
    expr = expand(expr)
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "step": _STEP,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": tags,
        "useValueForTime": False,
        "target": {
            "datasource": DATASOURCE,
            "expr": expr,
            "interval": _STEP,
            "range": True,
            "refId": "annotation",
        },
    }


def _lay_out(sections: Iterable[Section]) -> list[Json]:
    """Rows and panels with their numbers and places; each section begins on a new line."""
    numbers = itertools.count(1)
    placed: list[Json] = []
    y = 0
    for heading in sections:
        row: Json = {"type": "row", "title": heading.title, "collapsed": heading.collapsed}
        row |= {"id": next(numbers), "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}}
        below = [panel | {"id": next(numbers)} for panel in _flow(heading.panels, y + 1)]
        placed.append(row | {"panels": below if heading.collapsed else []})
        y += 1
        if not heading.collapsed:
            placed += below
            y = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in below)
    return placed


def _flow(panels: Iterable[Panel], y: int) -> Iterator[Json]:
    """The panels from left to right and line by line."""
    x = height = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        yield panel.json() | {"gridPos": {"h": panel.rows, "w": panel.width, "x": x, "y": y}}
        x += panel.width
        height = max(height, panel.rows)
