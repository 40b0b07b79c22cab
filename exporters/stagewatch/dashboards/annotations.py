"""What is drawn across every panel: injected faults, alerts (detection) and recoveries.

Only samples above 0 become events, and samples at most one step apart merge into a region.
"""

from __future__ import annotations

from typing import Any

from stagewatch.dashboards.filters import expand
from stagewatch.dashboards.modern import DATASOURCE

STEP = "10s"
"""Grafana's default is a minute, which would miss what is shorter."""


def house_annotations() -> list[dict[str, Any]]:
    """The same for every board, in order of the story they tell."""
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
        "step": STEP,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": tags,
        "useValueForTime": False,
        "target": {
            "datasource": DATASOURCE,
            "expr": expr,
            "interval": STEP,
            "range": True,
            "refId": "annotation",
        },
    }
