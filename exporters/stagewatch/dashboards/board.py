"""Builds a board: variables, annotations, links, and panels that flow into rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib import core

from stagewatch.dashboards.modern import DATASOURCE, Dashboard, Panel, Row, Variable
from stagewatch.dashboards.panels import expand, text

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
_HIDDEN = 2
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
    "runbooks": (
        "Where the judge serves the runbooks of alerts, for links.",
        'label_values(stagewatch_runbooks_info{url!=""}, url)',
    ),
}
"""Description and query by name, always in this order, so that links carry them between boards."""


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading; a collapsed section sends no queries until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


def section(title: str, *panels: Panel, lacking: str = "", collapsed: bool = False) -> Section:
    """Panels under a heading; `lacking`: the text of a panel without data, instead of "No data"."""
    for panel in panels:
        if lacking:
            panel.field.setdefault("noValue", lacking)
    return Section(title, panels, collapsed)


def board(
    title: str,
    *,
    uid: str,
    description: str,
    guide: str,
    variables_used: Iterable[str],
    sections: Sequence[Section],
) -> Dashboard:
    """A whole board; `guide` is Markdown that explains how to read it."""
    dashboard: Dashboard = Dashboard(
        title=title,
        uid=uid,
        description=description,
        tags=[TAG],
        refresh="30s",
        graphTooltip=1,  # one crosshair over all panels
        time=core.Time("now-1h", "now"),
        picker={
            "refresh_intervals": ["10s", "30s", "1m", "5m", "15m", "1h"],
            "quick_ranges": [
                {"display": name, "from": start, "to": "now"} for name, start in _RANGES
            ],
        },
        templating=core.Templating(list=_variables(variables_used)),
        annotations=core.Annotations(list=_annotations()),
        links=[core.DashboardLink(type="dashboards", tags=[TAG], keepTime=True, includeVars=True)],
        panels=_lay_out([_guide(guide), *sections]),
    ).auto_panel_ids()
    return dashboard


def _guide(content: str) -> Section:
    title = "How to read this board"
    return Section(title, (text(title, content),), collapsed=True)


def _variables(names: Iterable[str]) -> list[Variable]:
    """The data source, the cluster, and those named, in the order of every board."""
    wanted = {"cluster", *names}
    if "node" in wanted:
        wanted.add("partition")  # the query of the nodes uses it
    source = Variable(
        name="datasource",
        label="Data source",
        description="The Prometheus that scrapes the agents.",
        type="datasource",
        query="prometheus",
        refresh=1,
    )
    return [source, *(_variable(name) for name in _VARIABLES if name in wanted)]


def _variable(name: str) -> Variable:
    description, query = _VARIABLES[name]
    several = name not in ("job_id", "runbooks")
    return Variable(
        name=name,
        label={"job_id": "Job", "gpu": "GPU"}.get(name, name.capitalize()),
        description=description,
        query=query,
        refresh=_ON_TIME_RANGE,
        hide=_HIDDEN if name == "runbooks" else 0,
        sort=_NUMERICAL if name in ("gpu", "job_id") else _ALPHABETICAL,
        multi=several,
        includeAll=several,
        allValue=".*" if several else None,
    )


def _annotations() -> list[dict[str, Any]]:
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


def _lay_out(sections: Iterable[Section]) -> list[Any]:
    """Rows and panels with their places; each section begins on a new line."""
    placed: list[Any] = []
    y = 0
    for heading in sections:
        if heading.title:
            inside = list(heading.panels) if heading.collapsed else []
            placed.append(
                Row(
                    title=heading.title,
                    gridPos=core.GridPos(h=1, w=COLUMNS, x=0, y=y),
                    collapsed=heading.collapsed,
                    panels=inside,
                )
            )
            y += 1
        below = _flow(heading.panels, y)
        if not heading.collapsed:
            placed += heading.panels
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
