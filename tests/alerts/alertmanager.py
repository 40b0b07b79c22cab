"""A real Alertmanager as a test tells it of alerts, and what it has sent."""

from __future__ import annotations

import time
from typing import Any

import requests

from tests.alerts.listener import Listener
from tests.dashboards.boards import ROOT

SOURCE = ROOT / "deploy" / "alertmanager"
"""The configuration that is shipped."""


class Manager:
    """One Alertmanager and what it has sent."""

    def __init__(self, url: str, listener: Listener) -> None:
        self.url = url
        self.heard = listener

    def fire(self, name: str, *, resolved: bool = False, **labels: str) -> None:
        """Tell it of an alert, with annotations such as the rules give."""
        self.tell([self.alert(name, resolved=resolved, **labels)])

    def tell(self, alerts: list[dict[str, Any]]) -> None:
        """Tell it of several at once."""
        requests.post(f"{self.url}/api/v2/alerts", json=alerts, timeout=10).raise_for_status()

    def alert(self, name: str, *, resolved: bool = False, **labels: str) -> dict[str, Any]:
        """An alert as Prometheus would send it."""
        now = time.time()
        ends = {"endsAt": _iso(now - 1)} if resolved else {"endsAt": _iso(now + 600)}
        return {
            "labels": {"alertname": name, "cluster": "lab", **labels},
            "annotations": {
                "summary": f"The summary of {name}.",
                "description": f"The description of {name}.",
                "runbook_url": f"alerts/runbooks/{name}.md",
                "dashboard_url": "/d/stagewatch-job?var-job_id=540",
            },
            "startsAt": _iso(now - 30),
            **ends,
        }

    def state(self, name: str) -> str:
        """`active` or `suppressed`."""
        alerts = requests.get(f"{self.url}/api/v2/alerts", timeout=10).json()
        (found,) = [alert for alert in alerts if alert["labels"]["alertname"] == name]
        text: str = found["status"]["state"]
        return text


def _iso(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
