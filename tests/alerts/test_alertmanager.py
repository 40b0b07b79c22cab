"""What a real Alertmanager with the shipped configuration sends, and to whom."""

from __future__ import annotations

import json
from email import message_from_string

from tests.alerts.alertmanager import Manager
from tests.waiting import wait_for


def test_a_page_names_the_culprit_the_evidence_and_where_to_look(manager: Manager) -> None:
    manager.fire(
        "JobStalled",
        severity="critical",
        job_id="540",
        node="n3",
        rank="5",
        pid="4711",
        evidence="left_loop_early",
        user="ann",
        account="rl",
    )
    (page,) = wait_for(lambda: manager.heard.to("/pagerduty"), "a page")
    content = json.loads(page)
    assert content["routing_key"] == "secret-of-pagerduty_key"
    assert content["payload"]["summary"] == "Critical [lab] job 540 n3: JobStalled"
    text = content["payload"]["custom_details"]["what"]
    assert "JobStalled: The summary of JobStalled.\nThe description of JobStalled." in text
    assert "Culprit: rank 5, pid 4711 on n3\nOwner: ann, account rl\nEvidence: left loop" in text
    assert "Runbook: https://our.site/stagewatch/alerts/runbooks/JobStalled.md" in text
    assert "Dashboard: https://grafana.our.site/d/stagewatch-job?var-job_id=540" in text
    (slack,) = wait_for(lambda: manager.heard.to("/slack"), "a line in Slack")
    (attachment,) = json.loads(slack)["attachments"]
    assert attachment["title"] == "Critical [lab] job 540 n3: JobStalled"
    assert attachment["color"] == "danger"
    assert "Culprit: rank 5, pid 4711 on n3" in attachment["text"]
    assert "<no value>" not in page + slack


def test_links_that_are_whole_stay_as_they_are(manager: Manager) -> None:
    alert = manager.alert("NFSSlow", severity="warning", node="n1")
    runbook, board = "https://wiki.site/NFSSlow.md", "https://grafana.site/d/stagewatch-storage"
    alert["annotations"] |= {"runbook_url": runbook, "dashboard_url": board}
    manager.tell([alert])
    (slack,) = wait_for(lambda: manager.heard.to("/slack"), "a line in Slack")
    text = json.loads(slack)["attachments"][0]["text"]
    assert f"Runbook: {runbook}\nDashboard: {board}" in text


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
    assert "Owner:" not in attachment["text"]


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
