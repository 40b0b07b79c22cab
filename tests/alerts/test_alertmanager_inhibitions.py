"""What a real Alertmanager keeps back because its cause is told already."""

from __future__ import annotations

import requests
import yaml

from tests.alerts.alertmanager import SOURCE, Manager
from tests.waiting import wait_for


def test_a_page_during_a_fault_goes_out_as_a_note(manager: Manager) -> None:
    manager.fire("FaultInjected", severity="info", id="x7")
    manager.fire("PageDuringFault", severity="info", page="GPULost", node="n1")
    wait_for(
        lambda: any("PageDuringFault" in body for body in manager.heard.to("/webhook")), "a note"
    )
    assert manager.heard.to("/pagerduty") == []


HELD_BACK = (
    ("SlurmNodeOutOnPurpose", "GPUUncorrectableECC", {"node": "a1"}),
    ("StagewatchAgentUnreachable", "StorageStuck", {"node": "a2"}),
    ("JobLostNode", "StagewatchAgentUnreachable", {"node": "a3"}),
    ("SlurmNodeDown", "StagewatchAgentUnreachable", {"node": "a4"}),
    ("NodesLost", "SlurmNodeCountDropped", {"cluster": "a5"}),
    ("SlurmJobEnding", "JobStalled", {"job_id": "b1"}),
    ("JobOnSilentStorage", "JobStalled", {"job_id": "b2"}),
    ("JobLostNode", "JobStalled", {"job_id": "b3"}),
    ("FaultInJob", "JobStalled", {"job_id": "b4"}),
    ("JobStalled", "ThroughputDropped", {"job_id": "b5"}),
    ("JobStalled", "StalledHeartbeat", {"job_id": "b6"}),
    ("WeightSyncStraggler", "Straggler", {"job_id": "b8", "role": "train", "rank": "5"}),
    ("JobStalled", "EngineHoldsRequestsYieldsNothing", {"job_id": "b9"}),
    ("SlurmJobEnding", "EngineHoldsRequestsYieldsNothing", {"job_id": "b10"}),
    ("EnginePreemptionStorm", "EngineKVCacheExhausted", {"node": "b11", "instance": "b11:8000"}),
    ("SlurmControllerDown", "SlurmAccountingBehind", {"cluster": "c1"}),
    ("SlurmNodeDrainedTooLong", "SlurmNodeDrained", {"node": "c2"}),
    ("StorageStuck", "NFSRequestsUnanswered", {"node": "d1"}),
    ("NFSServerNotResponding", "StorageCanaryFailed", {"node": "d2"}),
    ("StorageSpaceExhausted", "StorageSpaceLow", {"node": "d3", "mount": "/scratch"}),
    ("StorageReadOnly", "StorageCanaryFailed", {"node": "d4", "mount": "/scratch"}),
    ("GPUNearSlowdown", "GPUTemperatureHigh", {"node": "e1", "gpu": "3"}),
    ("GPULost", "GPUCountBelowConfigured", {"node": "e2"}),
    ("GPUDriverMissing", "GPULost", {"node": "e3"}),
    ("FaultInjected", "GPULost", {"node": "f1"}),
)
"""An alert, what it holds back, and the labels in which both must agree."""
PAGES = {"GPULost", "JobStalled"}
"""Alerts that hold others back, or are held back, as pages alone."""


def test_a_page_holds_back_what_is_only_suspected_of_the_same_job(manager: Manager) -> None:
    labels = {"job_id": "540", "role": "train"}
    page = manager.alert("JobStalled", severity="critical", evidence="awaited", **labels)
    echo = manager.alert("JobStalled", severity="info", evidence="other_role", **labels)
    other = manager.alert("JobStalled", severity="critical", evidence="cycle", **labels)
    manager.tell([page, echo, other])

    def states() -> dict[str, str]:
        found = requests.get(f"{manager.url}/api/v2/alerts", timeout=10).json()
        return {alert["labels"]["evidence"]: alert["status"]["state"] for alert in found}

    expected = {"awaited": "active", "cycle": "active", "other_role": "suppressed"}
    wait_for(lambda: states() == expected, "the suspicion is held back, and it alone")


def test_every_inhibition_holds_where_the_labels_agree_and_only_there(manager: Manager) -> None:
    rules = yaml.safe_load((SOURCE / "alertmanager.yml").read_text())["inhibit_rules"]
    causes = " ".join(text for rule in rules for text in rule["source_matchers"])
    assert all(cause in causes for cause, _, _ in HELD_BACK)
    alerts = []
    for number, (cause, echo, labels) in enumerate(HELD_BACK):
        elsewhere = {name: f"not-{value}" for name, value in labels.items()}
        for name, where, of in (
            (cause, "cause", labels),
            (echo, "here", labels),
            (echo, "elsewhere", elsewhere),
        ):
            told = {"severity": "critical" if name in PAGES else "warning", "case": str(number)}
            alerts.append(manager.alert(name, **told, where=where, **of))
    manager.tell(alerts)

    def states() -> dict[tuple[str, str], str]:
        found = requests.get(f"{manager.url}/api/v2/alerts", timeout=10).json()
        return {
            (alert["labels"]["case"], alert["labels"]["where"]): alert["status"]["state"]
            for alert in found
        }

    expected = {
        (str(number), where): "suppressed" if where == "here" else "active"
        for number in range(len(HELD_BACK))
        for where in ("cause", "here", "elsewhere")
    }
    wait_for(lambda: states() == expected, "each echo is held back, and it alone")


def test_many_alerts_of_one_name_are_one_message_with_ten_names(manager: Manager) -> None:
    names = [f"gpu-{number:04}" for number in range(1, 1025)]
    manager.tell([manager.alert("StorageStuck", severity="critical", node=name) for name in names])

    def whole() -> list[str]:
        return [page for page in manager.heard.to("/pagerduty") if "1024 alerts" in page]

    page = wait_for(whole, "a page of all")[0]
    assert "1024 alerts: gpu-0001, gpu-0002" in page
    assert "gpu-0010 and 1014 more." in page and "gpu-0011" not in page


def test_a_reason_that_is_for_nobody_is_told_to_nobody(manager: Manager) -> None:
    manager.fire("SlurmNodeOutOnPurpose", severity="info", notify="nobody", node="n1")
    manager.fire("Watchdog", severity="info", notify="watchdog")
    wait_for(lambda: manager.heard.to("/watchdog"), "the watchdog is told")
    assert {path for path, _, _ in manager.heard.posts} == {"/watchdog"}


def test_an_agent_whose_node_is_not_named_silences_nothing(manager: Manager) -> None:
    manager.fire("StagewatchAgentUnreachable", severity="warning", instance="10.0.0.7:9947")
    manager.fire("JobStalled", severity="critical", job_id="540")
    page = wait_for(lambda: manager.heard.to("/pagerduty"), "a page")
    assert "JobStalled" in page[0]
    assert manager.state("JobStalled") == "active"
