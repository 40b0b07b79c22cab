"""Places, periods, runs of samples and incidents, each by itself."""

from __future__ import annotations

import io
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stagewatch.core.errors import ConfigError
from stagewatch.prometheus.api import Track
from stagewatch.prometheus.selectors import matchers
from stagewatch.report.components import Component, component_of, in_order, target_of
from stagewatch.report.diagnosis import stage_distance
from stagewatch.report.drawing import MAX_TEXT, fitted
from stagewatch.report.events import firings
from stagewatch.report.history import Intervals, column_runs, runs
from stagewatch.report.incidents import Incident, Sign, incidents_of
from stagewatch.report.jobs import JobStory
from stagewatch.report.periods import Period, baseline_period, moment, month, number, span, union
from stagewatch.report.phases import Phases, absorbed
from stagewatch.report.progress import Progress

RANK = Component("rank", "rollout", "8")


@pytest.mark.parametrize(
    ("text", "component", "right"),
    [
        ("rollout_worker_8", RANK, True),
        ("rollout:8", RANK, True),
        ("rollout-8", RANK, True),
        ("Rollout Worker 8", RANK, True),
        ("rank_8", RANK, True),
        ("8", RANK, True),
        ("train_worker_8", RANK, False),
        ("rollout_worker_18", RANK, False),
        ("train:5,rollout:8", RANK, True),
        ("rollout", RANK, True),
        ("controller", Component("rank", "controller", "0"), True),
        ("node-a", Component("node", node="node-a"), True),
        ("node-a", Component("mount", "", "/ckpt", "node-a"), False),
        ("/ckpt", Component("mount", "", "/ckpt", "node-a"), True),
        ("", RANK, False),
        (" , ", RANK, False),
    ],
)
def test_a_target_is_understood_as_people_write_it(
    text: str, component: Component, right: bool
) -> None:
    assert target_of(text).matches(component) is right


@given(some.text(), some.text(), some.text())
def test_any_target_can_be_asked_about_any_rank(text: str, role: str, rank: str) -> None:
    target_of(text).matches(Component("rank", role, rank))


def test_labels_name_the_most_exact_part() -> None:
    assert component_of({"node": "n", "role": "train", "rank": "1"}).label == "train 1"
    assert component_of({"node": "n", "mount": "/m"}).label == "n /m"
    assert component_of({"node": "n", "gpu": "3"}).label == "n gpu 3"
    assert component_of({"node": "n"}).label == "node n"
    assert component_of({"alertname": "x"}).kind == "slurm"


def test_of_a_long_path_the_end_is_kept_and_the_node_before_it() -> None:
    path = "/mnt/nfs/cluster/home/rl/experiments/7b/checkpoints/700"
    shown = {fitted(f"node-{node} {path}") for node in "ab"}
    assert len(shown) == 2
    assert all(text.startswith("node-") and text.endswith("ts/700") for text in shown)
    assert all(len(text) == MAX_TEXT for text in shown)
    assert fitted("node-a") == "node-a"


def test_components_are_listed_by_role_and_number() -> None:
    ranks = [Component("rank", role, rank) for role, rank in (("train", "10"), ("train", "9"))]
    controller = Component("rank", "controller", "0")
    node = Component("node", node="n")
    assert in_order([node, *ranks, controller]) == [controller, ranks[1], ranks[0], node]


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


def test_spans_are_short_and_what_is_unknown_was_not_seen() -> None:
    assert [span(each) for each in (None, 0.0, 2.34, 138.0, 8000.0, -5.0)] == [
        "not seen",
        "0.0 s",
        "2.3 s",
        "2 min 18 s",
        "2 h 13 min",
        "−5.0 s",
    ]


def test_numbers_have_their_units() -> None:
    assert number(0.0152, "s") == "15.2 ms"
    assert (number(0.99961, "s"), number(0.99961e-3, "s")) == ("0.9996 s", "1 ms")
    assert number(3 << 30, "B") == "3 GiB"
    assert number(0.851, "ratio") == "85.1 %"
    assert number(1600) == "1600"
    assert (number(45_000.4, "1/s"), number(9999.9)) == ("45,000 1/s", "10,000")
    assert (number(999_999), number(1e6)) == ("999,999", "1.000e+06")


def test_runs_of_samples_end_at_a_hole() -> None:
    assert runs([0, 2, 4, 20, 22, 24]) == [(0, 4), (20, 24)]
    assert runs([7]) == [(7, 7)]
    assert runs([]) == []


def test_an_alert_that_paused_fired_twice_and_the_marker_never() -> None:
    labels = {"__name__": "ALERTS", "alertname": "Straggler", "severity": "warning"}
    samples = [(float(at), 1.0) for at in (0, 2, 4, 40, 42, 44)]
    note = {**labels, "alertname": "FaultInjected"}
    found = firings([Track(labels, samples), Track(note, samples)], until=46)
    assert [(each.start, each.end, each.open) for each in found] == [(0, 4, False), (40, 44, True)]


@pytest.mark.parametrize(
    ("began", "surfaced", "distance"),
    [
        ("rollout", "train", 4),
        ("checkpoint", "weights_update", 6),
        ("weights_update", "rollout", 2),
        ("train", "train", 0),
        ("train", "cleanup", None),
        ("", "train", None),
    ],
)
def test_stages_follow_one_another_round_the_step(
    began: str, surfaced: str, distance: int | None
) -> None:
    assert stage_distance(began, surfaced) == distance


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
        Phases(restart, 315, 5, jobs=(JobStory("77", True, ended=315, resumed=1095),)),
        Phases(drain, 225, 5, jobs=(JobStory("77", False, ended=315, resumed=1095),)),
        Phases(alone, 315, 5, jobs=(JobStory("78", True, ended=315, resumed=1095),)),
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


@given(some.lists(some.tuples(some.integers(0, 100), some.integers(0, 50))))
def test_time_counts_once(raw: list[tuple[int, int]]) -> None:
    periods = [Period(start, start + length) for start, length in raw]
    seconds = {second for start, length in raw for second in range(start, start + length)}
    assert sum(each.seconds for each in union(periods)) == len(seconds)


@given(some.lists(some.none() | some.just(1.0)), some.integers(0, 3))
def test_runs_of_columns_cover_what_is_known(values: list[float | None], gap: int) -> None:
    found = column_runs(values, gap)
    covered = {at for first, last in found for at in range(first, last + 1)}
    assert {at for at, value in enumerate(values) if value is not None} <= covered
    assert all(values[first] is not None and values[last] is not None for first, last in found)


def test_an_interval_is_that_of_the_series() -> None:
    intervals = Intervals(scrape=1, slurm=30, rules=15)
    assert intervals.of("rl_rank_up") == 1
    assert intervals.of("slurm_job_info") == 30
    assert intervals.of("node:slurm_unavailable:info") == 30
    assert intervals.of("ALERTS") == 15
    assert intervals.of("job:rl_stall:active") == 15


def test_names_are_matched_as_they_are() -> None:
    assert matchers(node=["n.1", 'a"b\\c']) == 'node=~"n\\\\.1|a\\"b\\\\\\\\c"'


class Terminal(io.StringIO):
    """Standard error of somebody who looks on."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_alone() -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        progress = Progress(stream)
        progress.step("first{}")
        progress.step('max by (node) (last_over_time(second{node="n"}[1m]))')
        progress.close()
        assert ("query 2: second" in stream.getvalue()) is shown
        assert stream.getvalue().endswith("\r\033[K") is shown
