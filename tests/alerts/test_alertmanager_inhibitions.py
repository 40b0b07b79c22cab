"""What a real Alertmanager keeps back because its cause is told already."""

from __future__ import annotations

import pytest
import requests
import yaml

from tests.alerts.alertmanager import SOURCE, Manager
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("cause", "echo"),
    [
        (
            ("SlurmNodeDown", {"severity": "critical", "node": "n1"}),
            ("GPULost", {"severity": "critical", "node": "n1", "gpu": "3"}),
        ),
        (
            ("JobLostNode", {"severity": "warning", "job_id": "540", "node": "n1"}),
            ("StalledHeartbeat", {"severity": "warning", "job_id": "540", "role": "train"}),
        ),
        (
            ("BusyPollHang", {"severity": "critical", "job_id": "540", "node": "n1", "rank": "5"}),
            ("Straggler", {"severity": "warning", "job_id": "540", "node": "n2", "rank": "1"}),
        ),
        (
            ("FaultInjected", {"severity": "info", "id": "x7"}),
            ("GPULost", {"severity": "critical", "node": "n9", "gpu": "3"}),
        ),
    ],
    ids=["node-down", "node-of-a-job", "stall", "fault-marker"],
)
def test_a_cause_silences_its_echo_and_not_the_same_alert_elsewhere(
    manager: Manager, cause: tuple[str, dict[str, str]], echo: tuple[str, dict[str, str]]
) -> None:
    manager.fire(cause[0], **cause[1])
    wait_for(lambda: manager.heard.posts, "the cause to be told")
    manager.fire(echo[0], **echo[1])
    wait_for(lambda: manager.state(echo[0]) == "suppressed", "the echo to be silenced")
    manager.fire("NFSSlow", severity="warning", node="n7", job_id="999")
    wait_for(lambda: any("NFSSlow" in body for _, _, body in manager.heard.posts), "the other")
    assert not any(f"{echo[0]}: The summary" in body for _, _, body in manager.heard.posts)


def test_a_page_during_a_fault_goes_out_as_a_note(manager: Manager) -> None:
    manager.fire("FaultInjected", severity="info", id="x7")
    manager.fire("PageDuringFault", severity="info", page="GPULost", node="n1")
    wait_for(
        lambda: any("PageDuringFault" in body for body in manager.heard.to("/webhook")), "a note"
    )
    assert manager.heard.to("/pagerduty") == []


ECHOES = {
    "StagewatchAgentUnreachable": ("StorageStuck", {"node": "a1"}),
    "RankHoldsUpJob": ("StageOverdue", {"job_id": "b1"}),
    "GroupStall": ("ThroughputDropped", {"job_id": "c1"}),
    "SlurmControllerDown": ("SlurmAccountingBehind", {}),
    "StorageSpaceExhausted": ("StorageSpaceLow", {"node": "d1", "mount": "/scratch"}),
    "GPUNearSlowdown": ("GPUTemperatureHigh", {"node": "e1", "gpu": "3"}),
    "GPULost": ("GPUCountBelowConfigured", {"node": "f1"}),
    "WeightSyncStraggler": ("Straggler", {"job_id": "g1", "role": "train", "rank": "5"}),
    "SlurmNodeDrainedTooLong": ("SlurmNodeDrained", {"node": "h1"}),
}
"""An alert, and what it silences where the labels are the same."""


def test_every_inhibition_holds_where_the_labels_agree_and_only_there(manager: Manager) -> None:
    rules = yaml.safe_load((SOURCE / "alertmanager.yml").read_text())["inhibit_rules"]
    assert len(rules) == len(ECHOES)  # two for a stall's echoes; FaultInjected has its own test
    alerts = []
    for cause, (echo, labels) in ECHOES.items():
        alerts.append(manager.alert(cause, severity="warning", **labels))
        alerts.append(manager.alert(echo, severity="warning", **labels))
        if labels:
            elsewhere = {name: f"not-{value}" for name, value in labels.items()}
            alerts.append(manager.alert(echo, severity="warning", **elsewhere))
    manager.tell(alerts)

    def states() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for alert in requests.get(f"{manager.url}/api/v2/alerts", timeout=10).json():
            labels = set(alert["labels"].values())
            other = "elsewhere" if any(value.startswith("not-") for value in labels) else "here"
            key = f"{alert['labels']['alertname']} {other}"
            found.setdefault(key, set()).add(alert["status"]["state"])
        return found

    expected = {f"{cause} here": {"active"} for cause in ECHOES}
    for echo, labels in ECHOES.values():
        expected[f"{echo} here"] = {"suppressed"}
        if labels:
            expected[f"{echo} elsewhere"] = {"active"}
    wait_for(lambda: states() == expected, "each echo is silenced, and it alone")


def test_an_agent_whose_node_is_not_named_silences_nothing(manager: Manager) -> None:
    manager.fire("StagewatchAgentUnreachable", severity="warning", instance="10.0.0.7:9947")
    manager.fire("GroupStall", severity="critical", job_id="540")
    page = wait_for(lambda: manager.heard.to("/pagerduty"), "a page")
    assert "GroupStall" in page[0]
    assert manager.state("GroupStall") == "active"
