"""The alerts on stalled jobs, their runbooks and their promtool tests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.alerts.promtool import ALERTS
from tests.alerts.test_rules import SECTIONS, alerts, cases_of

NAMES = sorted(alerts("stalls"))


def cases(name: str) -> list[dict[str, Any]]:
    """What promtool is to expect of an alert, in hangs and in healthy jobs."""
    return [
        case
        for subject in ("stalls", "stalls-healthy", "stalls-roles")
        for test in cases_of(subject)
        for case in test.get("alert_rule_test", [])
        if case["alertname"] == name
    ]


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_is_tested_where_it_fires_and_where_it_must_not(name: str) -> None:
    assert {bool(case["exp_alerts"]) for case in cases(name)} == {True, False}


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(name: str) -> None:
    rule = alerts("stalls")[name]
    levels = {"StallSuspected": "info", "UninstrumentedJobStill": "info"}
    levels |= {"StalledHeartbeat": "warning"}
    assert rule["labels"]["severity"] == levels.get(name, "critical")
    assert rule["annotations"]["runbook_url"] == f"alerts/runbooks/{name}.md"
    assert rule["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_has_every_part_and_one_command_to_confirm(name: str) -> None:
    text = (ALERTS / "runbooks" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == SECTIONS
    confirm = text.partition("## Confirm")[2].partition("## ")[0]
    assert re.findall(r"```sh\n(.+)\n```", confirm) == ["stagewatch inspect --job JOB_ID"]


def test_the_culprits_runbook_explains_every_evidence() -> None:
    text = (ALERTS / "runbooks" / "BusyPollHang.md").read_text()
    rules = (ALERTS / "stalls.rules.yaml").read_text()
    told = set(re.findall(r"evidence: (\w+)$", rules, re.MULTILINE))
    assert len(told) > 9
    for evidence in told - {"call", "cycle", "group_only", "other_role", "stage_behind"}:
        assert f"| `{evidence}` |" in text
