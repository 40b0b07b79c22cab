"""Every alert about a job tells whose job it is, wherever a Slurm agent lists the job."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.promtool import ALERTS, failures_of, group_names, needs_promtool, seconds, series
from tests.alerts.rule_files import every_rule

WITHOUT_OWNER = {
    "FaultInJob": "tells Alertmanager to hold back the pages of a job with an injected fault",
    "JobOnSilentStorage": "tells Alertmanager that storage explains why the job stands still",
    "SlurmJobEnding": "tells Alertmanager to hold back what the ranks of an ending job show",
}
"""Alerts on a job that need not tell whose it is, as no person gets them, and what they are for."""
OWNER = {"user": "ann", "account": "rl"}
FILES = sorted((ALERTS / "tests").glob("*.test.yaml"))


@cache
def of_jobs() -> set[str]:
    """The alerts whose text names a job."""
    return {rule.name for rule in every_rule() if "job_id" in " ".join(rule.annotations.values())}


@cache
def cases_of(path: Path) -> tuple[dict[str, Any], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """A test file, and the first check of each alert there that fires on a job, with its test."""
    # As text: to promtool 0x10 are ten samples of nought, and to YAML it is sixteen.
    content = yaml.load(path.read_text(), yaml.CBaseLoader)
    first: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for test in content["tests"]:
        for check in test.get("alert_rule_test", ()):
            if any(alert["exp_labels"].get("job_id") for alert in check.get("exp_alerts") or ()):
                first.setdefault(check["alertname"], (test, check))
    return content, list(first.values())


def owned(test: dict[str, Any], check: dict[str, Any], *, by_slurm: bool) -> dict[str, Any]:
    """A case in which somebody owns every job that the check expects an alert on.

    `by_slurm` where the rules are loaded that read the owner from what a Slurm agent tells.
    """
    steps = seconds(check["eval_time"]) // seconds(test["interval"]) + 1
    labels = [alert["exp_labels"] for alert in check["exp_alerts"]]
    jobs = {(each["cluster"], each["job_id"]) for each in labels if each.get("job_id")}
    told = "\n".join(each["series"] for each in test["input_series"])
    more = [
        {
            "series": series(
                "slurm_job_info" if by_slurm else "job:slurm_owner:info",
                cluster=cluster,
                job_id=job,
                **OWNER,
            ),
            "values": f"1x{steps}",
        }
        for cluster, job in sorted(jobs)
        if not re.search(rf'slurm_job_info\{{[^}}]*\bjob_id="{job}"', told)
    ]
    expected = [
        alert | {"exp_labels": OWNER | alert["exp_labels"]}
        if alert["exp_labels"].get("job_id")
        else alert
        for alert in check["exp_alerts"]
    ]
    return {
        "interval": test["interval"],
        "input_series": [*test["input_series"], *more],
        "alert_rule_test": [check | {"exp_alerts": expected}],
    }


@needs_promtool
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_alert_on_a_job_tells_whose_it_is(path: Path, tmp_path: Path) -> None:
    """The cases themselves are played by `make check`."""
    content, cases = cases_of(path)
    files = [(path.parent / name).resolve() for name in content["rule_files"]]
    by_slurm = any("slurm.rules" in file.name for file in files)
    played = [
        owned(test, one, by_slurm=by_slurm)
        for test, one in cases
        if one["alertname"] not in WITHOUT_OWNER
    ]
    file = tmp_path / "owned.test.yaml"
    order = [group for rules in files for group in group_names(rules)]
    rules = {"rule_files": list(map(str, files)), "group_eval_order": order}
    file.write_text(json.dumps(content | rules | {"tests": played}))  # JSON is YAML
    assert not (failures := failures_of(file)), "\n".join(failures)


def test_every_alert_on_a_job_has_a_case_here() -> None:
    cases = {check["alertname"] for path in FILES for _, check in cases_of(path)[1]}
    assert of_jobs() <= cases
    assert WITHOUT_OWNER.keys() <= cases


def test_what_needs_no_owner_notifies_nobody() -> None:
    silent = {rule.name for rule in every_rule() if rule.labels.get("notify") == "nobody"}
    assert WITHOUT_OWNER.keys() <= silent
