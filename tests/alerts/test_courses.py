"""Courses that share a run of promtool pass and fail each by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.alerts.courses import Case, Courses
from tests.alerts.promtool import needs_promtool, series

pytestmark = needs_promtool

GIVEN = {series("made_up", cluster="c", node="n"): "1x10"}


def case(asked: str, given: dict[str, str], value: float | None, **labels: str) -> Case:
    return Case(given, [(asked, "10s", {} if value is None else {series("", **labels): value})])


@pytest.mark.parametrize("backwards", [False, True])
def test_each_sees_its_own_series_and_fails_alone(tmp_path: Path, backwards: bool) -> None:
    played = Courses(["clock.rules.yaml"])

    @played(
        ("sum by (cluster) (made_up)", GIVEN, 1.0, "c"),
        ('count by (cluster) (made_up{node="n"})', GIVEN, 2.0, "c"),
        ('sum by (cluster) (made_up{cluster="c"})', {}, None, ""),
        ("sum by (cluster) (made_up)", {}, 1.0, "c"),
        ("sum by (cluster) (made_up offset 2s) + on (cluster) (made_up)", GIVEN, 2.0, "c"),
    )
    def test_made_up(asked: str, given: dict[str, str], value: float | None, name: str) -> Case:
        labels = {"cluster": name} if name else {}
        one = case(asked, given, value, **labels)
        return Case(one.given, one.expected, backwards=backwards)

    found = list(played.failures(tmp_path).values())
    assert [len(failures) for failures in found] == [0, 1, 0, 1, 0]
    assert "case-1/c" in found[1][0]
    assert "case-3/" in found[3][0]


def test_an_expression_that_cannot_be_evaluated_fails(tmp_path: Path) -> None:
    played = Courses(["clock.rules.yaml"])

    @played()
    def test_made_up() -> Case:
        given = {series("made_up", cluster=name, node="n"): "1x10" for name in ("a", "b")}
        return case("made_up * on (node) made_up", given, 1.0, node="n")

    (failures,) = played.failures(tmp_path).values()
    assert "many-to-many" in failures[0]


def test_a_rule_that_cannot_be_evaluated_fails_all(tmp_path: Path) -> None:
    rules = {"record": "made:up", "expr": "made_up * on (node) made_up"}
    file = tmp_path / "made.rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "made", "rules": [rules]}]}))
    played = Courses([str(file)])

    @played(("a",), ("b",))
    def test_made_up(name: str) -> Case:
        return case("made_up", {series("made_up", cluster=name, node="n"): "1x10"}, 1.0)

    assert all("many-to-many" in each[0] for each in played.failures(tmp_path).values())
