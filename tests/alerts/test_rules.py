"""Rules, their tests and their runbooks stay in step; promtool itself checks and runs them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

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


def test_no_alert_is_defined_twice() -> None:
    """But once for each severity, as a suspicion and as a page."""
    defined = Counter(
        (rule.name, rule.labels["severity"]) for rule in every_rule() if not rule.records
    )
    assert [each for each, count in defined.items() if count > 1] == []
    files = Counter(name for subject in SUBJECTS for name in alerts(subject))
    assert [name for name, count in files.items() if count > 1] == []


def test_an_alert_says_what_where_and_what_to_do() -> None:
    for subject, name in EVERY:
        rule = alerts(subject)[name]
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        summary = rule["annotations"]["summary"]
        assert "{{" not in summary and summary.endswith("."), name
        assert rule["annotations"]["description"].strip(), name
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}{name}.md"


def test_an_alert_leads_to_a_board_with_variables_that_it_has() -> None:
    boards = {board["uid"]: board for board in map(load, (p.stem for p in GENERATED.iterdir()))}
    for subject, name in EVERY:
        url = alerts(subject)[name]["annotations"]["dashboard_url"]
        uid, _, query = url.removeprefix("/d/").partition("?")
        variables = {variable["name"] for variable in boards[uid]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= variables, name


def test_a_runbook_says_what_it_means_and_what_makes_it_fire_falsely() -> None:
    for _, name in EVERY:
        text = (ALERTS / "runbooks" / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
        assert tuple(parts[::2]) == SECTIONS, name
        assert all(part.strip() for part in parts[1::2]), name
        command = re.search(r"```sh\n(.*?)\n```", parts[3], re.DOTALL)
        assert command and "\n" not in command[1], name


def test_the_watchdog_fires_always() -> None:
    assert alerts("self")["Watchdog"]["expr"] == "vector(1)"


def test_an_alert_is_tested_before_at_and_after() -> None:
    for subject, name in EVERY:
        courses = [
            "".join("fires " if check.get("exp_alerts") else "silent " for check in checks)
            for checks in checks_of(subject, name)
        ]
        proven = any(re.fullmatch(r"(silent )+(fires )+(silent )+", each) for each in courses)
        assert proven or name == "Watchdog", name


def test_the_texts_of_an_alert_are_asserted() -> None:
    for subject, name in EVERY:
        checks = [check for test in checks_of(subject, name) for check in test]
        expected = [alert for check in checks for alert in check.get("exp_alerts") or ()]
        texts = alerts(subject)[name]["annotations"].keys()
        severities = {each.labels["severity"] for each in every_rule() if each.name == name}
        told = {alert["exp_labels"]["severity"] for alert in expected}
        assert name == "Watchdog" or told == severities, name
        for alert in expected:
            assert alert["exp_annotations"].keys() == texts, name
            assert "{{" not in alert["exp_annotations"]["description"], name


def test_the_thresholds_of_a_file_stand_at_its_head() -> None:
    """Of dcgm, which is generated, they stand in the generator's table; of limits, all over."""
    for file in {*FILES} - {ALERTS / "dcgm.rules.yaml", ALERTS / "limits.rules.yaml"}:
        head = file.read_text().partition("\ngroups:")[0].partition("# Thresholds")[2]
        told = {float(each) for each in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", head)}
        rules = [rule for rule in every_rule() if rule.file == file.name]
        compared = {abs(number) for rule in rules for number in rule.numbers}
        assert compared - {0, 1} <= told, file


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
