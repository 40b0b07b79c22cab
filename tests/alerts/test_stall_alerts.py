"""What the alerts on stalled jobs say, and their runbook explains."""

from __future__ import annotations

import re

from tests.alerts.promtool import ALERTS
from tests.alerts.test_rules import cases_of

TEXT = (ALERTS / "stalls.rules.yaml").read_text()


def evidence_told() -> set[str]:
    """The evidence of every text of JobStalled that promtool is to expect."""
    return {
        alert["exp_labels"]["evidence"]
        for test in cases_of("stalls")
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == "JobStalled"
        for alert in case["exp_alerts"]
    }


def test_every_evidence_that_a_text_puts_into_words_is_tested() -> None:
    in_words = set(re.findall(r'eq \$why "(\w+)"', TEXT))
    assert in_words | {"stage_behind", "group_only"} == evidence_told()


def test_the_runbook_explains_every_evidence() -> None:
    text = (ALERTS / "runbooks" / "JobStalled.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == evidence_told()
