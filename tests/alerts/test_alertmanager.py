"""A real Alertmanager with the shipped configuration, and receivers that only listen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from stagewatch.demo.cluster import free_port
from stagewatch.processes import Children
from tests.alerts.listener import Listener
from tests.dashboards.boards import ROOT
from tests.waiting import wait_for

BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = pytest.mark.skipif(BINARY is None, reason="needs alertmanager on the PATH")
SOURCE = ROOT / "deploy" / "alertmanager"
SECRETS = ("smtp_password", "slack_url", "pagerduty_key", "webhook_token")


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


@pytest.fixture
def manager(children: Children, tmp_path: Path) -> Iterator[Manager]:
    """The example's configuration, with addresses that lead to a listener, and no long waits."""
    listener = Listener()
    text = (SOURCE / "receivers.example.yml").read_text()
    config = yaml.safe_load(text.replace("/etc/alertmanager/secrets", str(tmp_path / "secrets")))
    shutil.copytree(SOURCE / "templates", tmp_path / "templates")
    site = tmp_path / "templates" / "site.tmpl"
    site.write_text(site.read_text().replace("example.org", "our.site"))
    (tmp_path / "secrets").mkdir()
    for name in SECRETS:
        (tmp_path / "secrets" / name).write_text(f"secret-of-{name}")
    (tmp_path / "secrets" / "slack_url").write_text(f"{listener.url}/slack")
    config["global"] |= {"smtp_smarthost": listener.smarthost, "smtp_require_tls": False}
    config["global"]["pagerduty_url"] = f"{listener.url}/pagerduty"
    del config["global"]["smtp_auth_username"], config["global"]["smtp_auth_password_file"]
    receivers = {receiver["name"]: receiver for receiver in config["receivers"]}
    sns = receivers["note"]["sns_configs"][0]
    sns["api_url"] = f"{listener.url}/sns"
    sns["sigv4"] |= {"access_key": "of-the-test", "secret_key": "of-the-test"}
    receivers["note"]["webhook_configs"][0]["url"] = f"{listener.url}/webhook"
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    children.start(
        [
            BINARY or "",
            f"--config.file={file}",
            f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        log=tmp_path / "log",
    )
    url = f"http://{address}"

    def ready() -> bool:
        try:
            return requests.get(f"{url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    wait_for(ready, "Alertmanager answers")
    yield Manager(url, listener)
    children.stop()
    listener.close()


def _iso(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def test_both_files_route_and_inhibit_alike() -> None:
    plain = yaml.safe_load((SOURCE / "alertmanager.yml").read_text())
    example = yaml.safe_load((SOURCE / "receivers.example.yml").read_text())
    for key in ("route", "inhibit_rules", "templates"):
        assert plain[key] == example[key]
    assert [receiver["name"] for receiver in plain["receivers"]] == [
        receiver["name"] for receiver in example["receivers"]
    ]


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool")
@pytest.mark.parametrize("name", ["alertmanager.yml", "receivers.example.yml"])
def test_amtool_accepts_the_file(name: str) -> None:
    command = ["amtool", "check-config", str(SOURCE / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_secrets_are_read_from_files() -> None:
    text = (SOURCE / "receivers.example.yml").read_text()
    lines = [line.strip().lstrip("- ") for line in text.splitlines()]
    named = [
        line for line in lines if re.match(r"\S*(password|_key|token|slack_api_url)\S*:", line)
    ]
    assert len(named) == 3
    assert all(re.match(r"\w+_file: /etc/alertmanager/secrets/\w+$", line) for line in named)
    assert "credentials_file: /etc/alertmanager/secrets/webhook_token" in text


def test_a_page_names_the_culprit_the_evidence_and_where_to_look(manager: Manager) -> None:
    manager.fire(
        "BusyPollHang",
        severity="critical",
        job_id="540",
        node="n3",
        rank="5",
        pid="4711",
        evidence="left_loop_early",
    )
    (page,) = wait_for(lambda: manager.heard.to("/pagerduty"), "a page")
    content = json.loads(page)
    assert content["routing_key"] == "secret-of-pagerduty_key"
    assert content["payload"]["summary"] == "Critical [lab] job 540 n3: BusyPollHang"
    text = content["payload"]["custom_details"]["what"]
    assert "BusyPollHang: The summary of BusyPollHang.\nThe description of BusyPollHang." in text
    assert "Culprit: rank 5, pid 4711 on n3\nEvidence: left_loop_early\nSince: 2" in text
    assert "Runbook: https://our.site/stagewatch/alerts/runbooks/BusyPollHang.md" in text
    assert "Dashboard: https://grafana.our.site/d/stagewatch-job?var-job_id=540" in text
    (slack,) = wait_for(lambda: manager.heard.to("/slack"), "a line in Slack")
    (attachment,) = json.loads(slack)["attachments"]
    assert attachment["title"] == "Critical [lab] job 540 n3: BusyPollHang"
    assert attachment["color"] == "danger"
    assert "Culprit: rank 5, pid 4711 on n3" in attachment["text"]
    assert "<no value>" not in page + slack


def test_what_happens_to_a_job_comes_in_one_message_by_slack_and_mail(manager: Manager) -> None:
    labels = {"severity": "warning", "job_id": "540", "node": "n1"}
    manager.tell([manager.alert("GPUHeldByEndedJob", gpu=gpu, **labels) for gpu in "01"])
    (mail,) = wait_for(lambda: manager.heard.mails, "a mail")
    message = message_from_string(mail)
    assert message["Subject"] == "Warning [lab] job 540 n1: GPUHeldByEndedJob (2)"
    (part,) = message.get_payload()
    text = part.get_payload(decode=True).decode()
    assert text.count("The description of GPUHeldByEndedJob.") == 2
    (slack,) = wait_for(lambda: manager.heard.to("/slack"), "a line in Slack")
    assert json.loads(slack)["channel"] == "#gpu-cluster"


def test_an_end_is_told(manager: Manager) -> None:
    manager.fire("NFSSlow", severity="warning", node="n1")
    wait_for(lambda: manager.heard.to("/slack"), "a line in Slack")
    manager.fire("NFSSlow", severity="warning", node="n1", resolved=True)
    wait_for(lambda: len(manager.heard.to("/slack")) > 1, "the end in Slack")
    (attachment,) = json.loads(manager.heard.to("/slack")[-1])["attachments"]
    assert attachment["title"] == "Resolved [lab] n1: NFSSlow"
    assert attachment["color"] == "good"
    assert attachment["text"].startswith("RESOLVED NFSSlow")


def test_a_note_goes_to_sns_and_the_webhook_and_wakes_nobody(manager: Manager) -> None:
    manager.fire("SlurmNodeDrained", severity="info", node="n1")
    (hook,) = wait_for(lambda: manager.heard.to("/webhook"), "a call of the webhook")
    assert json.loads(hook)["alerts"][0]["labels"]["node"] == "n1"
    (headers,) = [headers for path, headers, _ in manager.heard.posts if path == "/webhook"]
    assert headers["Authorization"] == "Bearer secret-of-webhook_token"

    def published() -> list[str]:
        return [body for path, _, body in manager.heard.posts if path.startswith("/sns")]

    (sns,) = wait_for(published, "a message to SNS")
    assert "Subject=Info" in sns
    assert manager.heard.to("/pagerduty") == manager.heard.to("/slack") == manager.heard.mails == []


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
