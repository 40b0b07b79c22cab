"""Places, periods, runs of samples and incidents, each by itself."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stagewatch.core.errors import ConfigError
from stagewatch.report.components import Component, component_of, target_of
from stagewatch.report.history import Grid
from stagewatch.report.incidents import Incident, Sign, incidents_of
from stagewatch.report.jobs import JobStory
from stagewatch.report.periods import Period, baseline_period, moment, month, number
from stagewatch.report.phases import Phases, absorbed

RANK = Component("rank", "rollout", "8")
GRID = Grid(0, 5, 300)


@pytest.mark.parametrize(
    ("text", "component", "right"),
    [
        ("rollout_worker_8", RANK, True),
        ("Rollout Worker 8", RANK, True),
        ("rank_8", RANK, True),
        ("train_worker_8", RANK, False),
        ("rollout_worker_18", RANK, False),
        ("train:5,rollout:8", RANK, True),
        ("controller", Component("rank", "controller", "0"), True),
        ("node-a", Component("node", node="node-a"), True),
        ("node-a", Component("mount", "", "/ckpt", "node-a"), False),
        ("/ckpt", Component("mount", "", "/ckpt", "node-a"), True),
        ("", RANK, False),
    ],
)
def test_a_target_is_understood_as_people_write_it(
    text: str, component: Component, right: bool
) -> None:
    assert target_of(text).matches(component) is right


def test_labels_name_the_most_exact_part() -> None:
    assert component_of({"node": "n", "role": "train", "rank": "1"}).label == "train 1"
    assert component_of({"node": "n", "mount": "/m"}).label == "n /m"
    assert component_of({"node": "n", "gpu": "3"}).label == "n gpu 3"
    assert component_of({"node": "n"}).label == "node n"
    assert component_of({"alertname": "x"}).kind == "slurm"


def test_periods_are_read() -> None:
    begin = datetime(2026, 11, 21, 14, 30, tzinfo=timezone.utc).timestamp()
    assert moment("2026-11-21T14:30:00Z", "--from") == begin
    assert moment("2026-11-21T14:30", "--from") == begin
    assert moment("2026-11-21T15:30:00+01:00", "--from") == begin
    assert baseline_period("10m-before", 1000.0) == Period(400.0, 1000.0)
    assert baseline_period("100..200", 1000.0) == Period(100.0, 200.0)
    assert month("2026-02").seconds == 28 * 86400
    for text in ("10m", "x-before", "5..", "200..100", "900..1100"):
        with pytest.raises(ConfigError):
            baseline_period(text, 1000.0)


@given(some.text())
def test_no_text_for_a_time_raises_anything_else(text: str) -> None:
    for read in (
        lambda: moment(text, "--from"),
        lambda: baseline_period(text, 0.0),
        lambda: month(text),
    ):
        try:
            read()
        except ConfigError:
            continue


def test_numbers_have_their_units() -> None:
    assert number(0.0152, "s") == "15.2 ms"
    assert (number(0.99961, "s"), number(0.99961e-3, "s")) == ("0.9996 s", "1 ms")
    assert number(3 << 30, "B") == "3 GiB"
    assert number(0.851, "ratio") == "85.1 %"
    assert number(1600) == "1600"
    assert (number(45_000.4, "1/s"), number(9999.9)) == ("45,000 1/s", "10,000")
    assert (number(999_999), number(1e6)) == ("999,999", "1.000e+06")


def test_a_node_and_the_job_on_it_make_one_incident_with_the_marker() -> None:
    fault = Sign("fault", 0, 60, False, "n1")
    drain = Sign("drain", 225, 1050, False, "n1")
    restart = Sign("restart", 320, 320, False, "", "77")
    other = Sign("drain", 500, 600, False, "n9")
    later = Sign("drain", 9000, 9100, False, "n1")
    found = incidents_of([fault, drain, restart, other, later])
    assert [each.start for each in found] == [0, 500, 9000]
    assert found[0].signs == (fault, drain, restart)
    assert found[0].nodes == ("n1",)
    assert found[0].jobs == ("77",)


def test_a_restart_told_by_the_jobs_node_too_is_one_incident() -> None:
    drain = Incident((Sign("drain", 225, 1050, False, "n1"),))
    restart = Incident((Sign("restart", 320, 320, False, "", "77"),))
    alone = Incident((Sign("restart", 320, 320, False, "", "78"),))
    found = [
        Phases(restart, 315, GRID, jobs=(JobStory("77", True, ended=315, resumed=1095),)),
        Phases(drain, 225, GRID, jobs=(JobStory("77", False, ended=315, resumed=1095),)),
        Phases(alone, 315, GRID, jobs=(JobStory("78", True, ended=315, resumed=1095),)),
    ]
    kept = absorbed(found)
    assert [each.incident.jobs for each in kept] == [("77",), ("78",)]
    assert kept[0].incident.nodes == ("n1",)
    assert [sign.kind for sign in kept[0].incident.signs] == ["drain", "restart"]


@given(
    some.lists(some.tuples(some.integers(0, 100), some.integers(0, 50), some.sampled_from("abc")))
)
def test_every_sign_is_in_one_incident(raw: list[tuple[int, int, str]]) -> None:
    signs = [
        Sign("drain", start * 60.0, (start + length) * 60.0, False, node)
        for start, length, node in raw
    ]
    found = incidents_of(signs)
    assert sorted(sign.start for each in found for sign in each.signs) == sorted(
        sign.start for sign in signs
    )
