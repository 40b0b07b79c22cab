"""Limits of alerts: each that a rule reads has a default, a runbook and a line in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagewatch.assets import site_rules
from tests.alerts.promtool import ALERTS, needs_promtool, play
from tests.alerts.rule_files import every_rule
from tests.dashboards.boards import ROOT

DEFAULTS = {
    rule.labels["limit"]: float(re.fullmatch(r"vector\((.+)\)", rule.expression)[1])  # type: ignore[index]
    for rule in every_rule()
    if rule.name == "limit:default:value"
}
READ = {
    rule.name: set(re.findall(r'limit:effective:value\{limit="(\w+)"\}', rule.expression))
    for rule in every_rule()
}


def test_every_default_is_read_and_every_limit_that_is_read_has_one() -> None:
    assert set().union(*READ.values()) == DEFAULTS.keys()


def test_the_alert_on_missing_limits_counts_all_of_them() -> None:
    (rule,) = [rule for rule in every_rule() if rule.name == "StagewatchLimitsMissing"]
    assert rule.numbers - {0} == {len(DEFAULTS)}


def test_the_runbook_of_an_alert_names_its_limits() -> None:
    for name, keys in READ.items():
        if keys and ":" not in name:
            text = (ALERTS / "runbooks" / f"{name}.md").read_text()
            assert all(f"`{key}`" in text for key in keys), name


def test_the_page_on_tuning_has_every_limit() -> None:
    page = (ROOT / "docs" / "tuning.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", page, re.MULTILINE)
    assert {key: float(value) for key, value in rows} == DEFAULTS


def test_a_rule_without_the_file_of_limits_compares_with_the_same_default() -> None:
    found = {
        (key, float(default))
        for rule in every_rule()
        for key, default in re.findall(
            r'scalar\(limit:effective:value\{limit="(\w+)"\} or on \(\) vector\((.+?)\)\)',
            rule.expression,
        )
    }
    assert found == set(DEFAULTS.items())
    assert all(
        rule.expression.count("limit:effective:value{")
        == rule.expression.count("} or on () vector")
        for rule in every_rule()
    )


@needs_promtool
def test_an_alert_fires_of_a_site_that_has_loaded_its_file_alone(tmp_path: Path) -> None:
    gpu = '{cluster="c", node="n", gpu="0", uuid="GPU-0"}'
    labels = "alertname='GPUTemperatureHigh', alertstate='firing', severity='warning'"
    play(
        tmp_path,
        ["gpu.rules.yaml"],
        {f"gpu_temperature_celsius{gpu}": "86x20"},
        [("ALERTS{alertstate='firing'}", "9m", {f"ALERTS{gpu[:-1]}, {labels}}}": 1.0})],
        interval="30s",
    )


@needs_promtool
@pytest.mark.parametrize(("degrees", "fires"), [(81, True), (79, False)])
def test_a_line_of_the_sites_file_changes_its_alert(
    degrees: int, fires: bool, tmp_path: Path
) -> None:
    site = tmp_path / "site.rules.yaml"
    line = (
        "- {record: site:limit:value, labels: {limit: gpu_temperature_celsius}, expr: vector(85)}"
    )
    text = site_rules(ALERTS)
    assert f"# {line}" in text
    site.write_text(text.replace(f"# {line}", line.replace("85", "80")))
    gpu = '{cluster="c", node="n", gpu="0", uuid="GPU-0"}'
    labels = "alertname='GPUTemperatureHigh', alertstate='firing', severity='warning'"
    expected = {f"ALERTS{gpu[:-1]}, {labels}}}": 1.0}
    play(
        tmp_path,
        [str(site), "limits.rules.yaml", "gpu.rules.yaml"],
        {f"gpu_temperature_celsius{gpu}": f"{degrees}x20"},
        [("ALERTS{alertstate='firing'}", "9m", expected if fires else {})],
        interval="30s",
    )
