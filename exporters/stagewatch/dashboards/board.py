"""Builds a board: variables, annotations, links, and panels that flow into rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stagewatch.dashboards.panels import DATASOURCE, Panel, expand, text

COLUMNS = 24
TAG = "stagewatch"
_LINKS = dict.fromkeys(("title", "tooltip", "url"), "") | {
    "type": "dashboards",
    "tags": [TAG],
    "icon": "external link",
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
}
"""To the other boards, with the same time range and variables."""

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
        "Jobs that had ranks in this time range.",
        'label_values(rl_rank_info{cluster=~"$cluster"}, job_id)',
    ),
}
"""Description and query by name, always in this order, so that links carry them between boards."""


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
) -> dict[str, Any]:
    """A whole board's JSON; `guide` is Markdown that explains how to read it."""
    panels = _lay_out([Section("", (text("How to read this board", guide),)), *sections])
    return {
        "annotations": {"list": _annotations()},
        "description": description,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,  # one crosshair over all panels
        "id": None,
        "links": [_LINKS],
        "panels": panels,
        "refresh": "30s",
        "schemaVersion": 39,
        "tags": [TAG],
        "templating": {"list": _variables(variables_used)},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": title,
        "uid": uid,
        "version": 1,
        "weekStart": "",
    }


def _variables(names: Iterable[str]) -> list[dict[str, Any]]:
    """The data source, the cluster, and those named, in the order of every board."""
    wanted = {"cluster", *names}
    if "node" in wanted:
        wanted.add("partition")  # the query of the nodes uses it
    source = {
        "name": "datasource",
        "label": "Data source",
        "description": "The Prometheus that scrapes the agents.",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
    }
    chosen = [source, *(_variable(name) for name in _VARIABLES if name in wanted)]
    return [{"current": {}, "hide": 0, "options": [], "regex": ""} | each for each in chosen]


def _variable(name: str) -> dict[str, Any]:
    description, query = _VARIABLES[name]
    several = name != "job_id"
    variable = {
        "name": name,
        "label": {"job_id": "Job", "gpu": "GPU"}.get(name, name.capitalize()),
        "description": description,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": _ON_TIME_RANGE,
        "sort": _NUMERICAL if name in ("gpu", "job_id") else _ALPHABETICAL,
        "multi": several,
        "includeAll": several,
    }
    if several:
        variable |= {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
    return variable


def _annotations() -> list[dict[str, Any]]:
    """The events that every panel shows: injected faults, alerts (detection) and recoveries.

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
            "max by (alertname, severity, node, job_id, rank, gpu)"
            ' (ALERTS{CLUSTER, alertstate="firing", severity=~"critical|warning"})',
            color="orange",
            title="{{alertname}}",
            text="Detected: node {{node}} job {{job_id}} rank {{rank}} GPU {{gpu}}",
            tags="alertname,severity",
        ),
        _annotation(
            "Nodes back",
            "max by (node, kind) (node:recovery:event{CLUSTER})",
            color="green",
            title="{{node}} is back",
            text="Recovered from: {{kind}}",
            tags="node,kind",
        ),
        _annotation(
            "Jobs back",
            "max by (job_id, role) (job:recovery:event{CLUSTER})",
            color="green",
            title="Job {{job_id}} goes on",
            text="Recovered: {{role}} ranks make progress again",
            tags="job_id,role",
        ),
    ]


def _annotation(
    name: str, expr: str, *, color: str, title: str, text: str, tags: str
) -> dict[str, Any]:
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


def _lay_out(sections: Iterable[Section]) -> list[Panel]:
    """Rows and panels with their places and ids; each section begins on a new line."""
    placed: list[Panel] = []
    ids = itertools.count(1)
    y = 0
    for heading in sections:
        if heading.title:
            row = {"type": "row", "id": next(ids), "title": heading.title, "panels": []}
            row |= {
                "collapsed": heading.collapsed,
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            }
            placed.append(row)
            y += 1
        x = height = 0
        below = y
        for panel in heading.panels:
            place = panel["gridPos"]
            if x + place["w"] > COLUMNS:
                x, below, height = 0, below + height, 0
            panel["id"] = next(ids)
            place |= {"x": x, "y": below}
            x += place["w"]
            height = max(height, place["h"])
        if heading.collapsed:
            placed[-1]["panels"] = list(heading.panels)
        else:
            placed += heading.panels
            y = below + height
    return placed
