"""The cases of a promtool test file that are played at once pass and fail each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.promtool import needs_promtool
from tests.alerts.side_by_side import SideBySide

pytestmark = needs_promtool

FILE = """
rule_files: [made.rules.yaml]
evaluation_interval: 10s
tests:
  - interval: 10s
    input_series: [{series: 'made_up{cluster="c"}', values: 0x3 7x10}]
    alert_rule_test:
      - {alertname: MadeUp, eval_time: 60s, exp_alerts: [%(alert)s]}
    promql_expr_test:
      - {expr: sum(made_up), eval_time: 10s, exp_samples: [{labels: '{}', value: 0}]}
  - interval: 10s
    input_series: [{series: 'made_up{cluster="c"}', values: 8x3 8x10}]
    alert_rule_test:
      - {alertname: MadeUp, eval_time: 20s, exp_alerts: [%(other)s]}
  - interval: 10s
    input_series: [{series: 'made_up{cluster="d"}', values: 0x10}]
    alert_rule_test:
      - {alertname: MadeUp, eval_time: 1m, exp_alerts: []}
"""
RULES = """
groups:
  - name: made
    rules:
      - alert: MadeUp
        expr: made_up > 5
        annotations: {summary: '{{ $value }} in {{ $labels.cluster }}.'}
"""
RIGHT = "{exp_labels: {cluster: c}, exp_annotations: {summary: '%s in c.'}}"


def failing(tmp_path: Path, alert: str, other: str) -> str:
    rules = tmp_path / "made.rules.yaml"
    rules.write_text(RULES)
    file = tmp_path / "made.test.yaml"
    text = FILE % {"alert": alert, "other": other}
    file.write_text(text.replace("[made.rules.yaml]", f"[{rules}]"))
    try:
        SideBySide(file).check(tmp_path)
    except AssertionError as error:
        return str(error)
    return ""


def test_a_case_is_not_told_of_the_alerts_of_another(tmp_path: Path) -> None:
    """At a minute the second fires too, and only the first and the third ask."""
    assert failing(tmp_path, RIGHT % 7, RIGHT % 8) == ""


@pytest.mark.parametrize(
    ("alert", "other", "when"),
    [
        ("", RIGHT % 8, "1m"),
        (RIGHT % 7, "", "20s"),
        (RIGHT % 6, RIGHT % 8, "1m"),
        (f"{RIGHT % 7}, {RIGHT.replace('cluster: c', 'cluster: d') % 7}", RIGHT % 8, "1m"),
    ],
    ids=["unexpected", "unexpected in another", "another text", "one that does not fire"],
)
def test_what_differs_in_the_own_clusters_is_told(
    tmp_path: Path, alert: str, other: str, when: str
) -> None:
    told = failing(tmp_path, alert, other)
    assert told.count("alertname: ") == 1
    assert f"alertname: MadeUp, time: {when}," in told
