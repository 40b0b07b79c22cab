"""Rules, their tests and their runbooks stay in step; promtool itself checks and runs them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
import yaml

from tests.alerts.promtool import groups_of, seconds
from tests.alerts.rule_files import every_rule
from tests.dashboards.boards import GENERATED, ROOT, load

ALERTS = ROOT / "alerts"
FILES = sorted(ALERTS.glob("*.rules.yaml"))
SUBJECTS = [path.name.removesuffix(".rules.yaml") for path in FILES]
MORE_TESTS = {"self": ["limits-missing"], "slurm": ["slurm-hours"], "stages": ["stages-failures"]}
"""Files of tests beside that of the subject's own name."""
RUNBOOKS = (
    '{{ with query "stagewatch_runbooks_info" | sortByLabel "url" }}{{ . | first | label "url" }}/'
    "{{ else }}alerts/runbooks/{{ end }}"
)
"""The judge's pages, or the place in this repository."""
SECTIONS = ("What it means", "Confirm", "What to do", "What makes it fire falsely")


@cache
def alerts(subject: str) -> dict[str, dict[str, Any]]:
    """The alerts of a file, by name."""
    groups = groups_of(ALERTS / f"{subject}.rules.yaml")
    rules = [rule for group in groups for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@cache
def cases_of(subject: str) -> list[dict[str, Any]]:
    """The promtool tests of a file."""
    text = (ALERTS / "tests" / f"{subject}.test.yaml").read_text()
    content = yaml.load(text, yaml.CSafeLoader)
    tests: list[dict[str, Any]] = content["tests"]
    return tests


def checks_of(subject: str, name: str) -> list[list[dict[str, Any]]]:
    """The checks of an alert, in the order of their time, for each of its promtool tests."""
    files = [subject, *MORE_TESTS.get(subject, ())]
    found = []
    for test in (test for one in files for test in cases_of(one)):
        checks = [each for each in test.get("alert_rule_test", ()) if each["alertname"] == name]
        found.append(sorted(checks, key=lambda check: seconds(check["eval_time"])))
    return found


EVERY = [(subject, name) for subject in SUBJECTS for name in alerts(subject)]
every_alert = pytest.mark.parametrize(("subject", "name"), EVERY)


def test_no_alert_is_defined_twice() -> None:
    """But once for each severity, as a suspicion and as a page."""
    defined = Counter(
        (rule.name, rule.labels["severity"]) for rule in every_rule() if not rule.records
    )
    assert [each for each, count in defined.items() if count > 1] == []
    files = Counter(name for subject in SUBJECTS for name in alerts(subject))
    assert [name for name, count in files.items() if count > 1] == []


@every_alert
def test_an_alert_says_what_where_and_what_to_do(subject: str, name: str) -> None:
    rule = alerts(subject)[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    summary = rule["annotations"]["summary"]
    assert "{{" not in summary and summary.endswith(".")
    assert rule["annotations"]["description"].strip()
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}{name}.md"


@cache
def generated_boards() -> dict[str, dict[str, Any]]:
    """The boards as they are shipped, by uid."""
    return {board["uid"]: board for board in map(load, (p.stem for p in GENERATED.iterdir()))}


@every_alert
def test_an_alert_leads_to_a_board_with_variables_that_it_has(subject: str, name: str) -> None:
    boards = generated_boards()
    url = alerts(subject)[name]["annotations"]["dashboard_url"]
    uid, _, query = url.removeprefix("/d/").partition("?")
    variables = {variable["name"] for variable in boards[uid]["templating"]["list"]}
    assert set(re.findall(r"var-(\w+)=", query)) <= variables


@every_alert
def test_a_runbook_says_what_it_means_and_what_makes_it_fire_falsely(
    subject: str, name: str
) -> None:
    text = (ALERTS / "runbooks" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    assert tuple(parts[::2]) == SECTIONS
    assert all(part.strip() for part in parts[1::2])
    command = re.search(r"```sh\n(.*?)\n```", parts[3], re.DOTALL)
    assert command and "\n" not in command[1]


def test_the_watchdog_fires_always() -> None:
    assert alerts("self")["Watchdog"]["expr"] == "vector(1)"


@pytest.mark.parametrize(("subject", "name"), [each for each in EVERY if each[1] != "Watchdog"])
def test_an_alert_is_tested_before_at_and_after(subject: str, name: str) -> None:
    courses = [
        "".join("fires " if check.get("exp_alerts") else "silent " for check in checks)
        for checks in checks_of(subject, name)
    ]
    assert any(re.fullmatch(r"(silent )+(fires )+(silent )+", course) for course in courses)


@every_alert
def test_the_texts_of_an_alert_are_asserted(subject: str, name: str) -> None:
    expected = [
        alert
        for checks in checks_of(subject, name)
        for check in checks
        for alert in check.get("exp_alerts") or ()
    ]
    rule = alerts(subject)[name]
    severities = {each.labels["severity"] for each in every_rule() if each.name == name}
    assert name == "Watchdog" or {a["exp_labels"]["severity"] for a in expected} == severities
    for alert in expected:
        assert alert["exp_annotations"].keys() == rule["annotations"].keys()
        assert "{{" not in alert["exp_annotations"]["description"]


@pytest.mark.parametrize(
    "subject", [subject for subject in SUBJECTS if subject not in ("dcgm", "limits")]
)
def test_the_thresholds_of_a_file_stand_at_its_head(subject: str) -> None:
    """Of dcgm, which is generated, they stand in the generator's table; of limits, all over."""
    file = f"{subject}.rules.yaml"
    head = (ALERTS / file).read_text().partition("\ngroups:")[0].partition("# Thresholds")[2]
    told = {float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", head)}
    compared = {
        abs(number) for rule in every_rule() if rule.file == file for number in rule.numbers
    }
    assert compared - {0, 1} <= told


AT_ONCE = {
    "it tells an event, or what the driver or Slurm has noted and does not take back": {
        *("FaultInjected", "FaultInJob", "PageDuringFault", "FirstFailure", "LogFirstError"),
        *("GPUXidCritical", "GPUXidWarning", "GPUNVSwitchFatal", "GPUUncorrectableECC"),
        *("GPUSramErrorsBeyondLimit", "GPURowRemapFailed", "OutOfMemoryKill"),
        *("SlurmJobEnding", "SlurmJobsEndedByNodeFailure", "SlurmNodeOutOnPurpose", "Watchdog"),
        *("NFSServerNotResponding", "JobOnSilentStorage", "ReplicaDiffers"),
    },
    "it counts over a range of time": {
        *("GPUNVLinkErrors", "NetworkLinkFlapping", "SlurmNodeFlapping", "SlurmRequeueLoop"),
        "StagewatchCardinalityCapped",
    },
    "its limit is a time, or its records wait before it": {
        *("FaultMarkerForgotten", "GPUDriverWedged", "GPUHeldByEndedJob", "GPUAllocatedIdle"),
        *("GPUHeldIdle", "StagewatchCollectorStuck", "SlurmNodeDrainedTooLong", "StorageStuck"),
        *("SlurmJobCompletingTooLong", "Straggler", "WeightSyncStraggler", "BatchSizeOff"),
        *("SlowRank", "SlowNode", "SlownessRotates", "UninstrumentedJobStill"),
        *("JobStalled", "StalledHeartbeat"),
    },
}


def test_an_alert_without_for_has_a_reason() -> None:
    without = {
        name for subject in SUBJECTS for name, rule in alerts(subject).items() if "for" not in rule
    }
    assert without == set().union(*AT_ONCE.values())


def test_there_is_a_runbook_for_every_alert_and_none_of_one_that_is_gone() -> None:
    known = {name for subject in SUBJECTS for name in alerts(subject)}
    assert {path.stem for path in (ALERTS / "runbooks").glob("*.md")} == known
