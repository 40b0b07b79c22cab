"""The experiment report of a history whose numbers are known, from real servers."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stagewatch.cli import main
from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.events import find_fault
from stagewatch.report.experiment import Experiment
from stagewatch.report.history import column_runs
from tests.report import contention as past
from tests.report.conftest import experiment_of
from tests.report.filled import filled_prometheus


def after(experiment: Experiment, name: str, view: str = "milestones") -> float | None:
    """Seconds from the injection to a milestone."""
    when = getattr(experiment, view)[name].time
    return None if when is None else round(when - past.T, 3)


def series(experiment: Experiment, component: str, title: str) -> Any:
    """One finding."""
    found = [
        each
        for each in experiment.view.findings
        if each.component.label == component and each.title == title
    ]
    assert len(found) == 1, [each.title for each in experiment.view.findings]
    return found[0]


def test_the_moments_are_those_of_the_history(experiment: Experiment) -> None:
    assert after(experiment, "injected") == 0.0
    assert after(experiment, "effect") == past.EFFECT
    assert after(experiment, "detected") == past.DETECTED
    assert after(experiment, "localised") == past.DETECTED
    assert after(experiment, "first_error") == past.FAILED
    assert after(experiment, "last_error") == past.TIMED_OUT_AGAIN
    assert after(experiment, "ended") == past.FAULT_END - 2  # its last sample
    assert after(experiment, "clear") == past.CLEAR - 2


def test_a_fault_has_ended_with_the_last_sample_of_its_marker(
    children: Children, tmp_path: Path
) -> None:
    # Looking back 3 s alone, as Prometheus does where an agent says that a series has ended.
    url = filled_prometheus(children, tmp_path / "p", past.contention(), lookback="3s")
    with closing(PrometheusApi(url)) as api:
        assert find_fault(api, "cpu-1", 31).end == past.T + past.FAULT_END - 2


def test_the_controller_alone_detects_late_and_localises_nothing(experiment: Experiment) -> None:
    # Its own stage is open for longer than 1.5 times the 18 s of the baseline from 28 s on.
    assert after(experiment, "detected", "alone") == 28.0
    assert after(experiment, "localised", "alone") is None
    assert after(experiment, "first_error", "alone") == past.TIMED_OUT


def test_it_began_elsewhere_than_it_surfaced(experiment: Experiment) -> None:
    diagnosis = experiment.diagnosis
    assert (diagnosis.began.component, diagnosis.began.stage) == ("rollout 2", "rollout")
    assert (diagnosis.surfaced.component, diagnosis.surfaced.stage) == ("controller 0", "cleanup")
    assert experiment.fault.expected_stage == "train"


def test_alerts_that_fired_before_and_those_about_the_marker_detect_nothing(
    experiment: Experiment,
) -> None:
    assert [each.name for each in experiment.view.firings] == ["Straggler", "JobStalled"]


def test_gaps_in_the_data_stay_gaps(experiment: Experiment) -> None:
    finding = series(experiment, "rollout 0", "run-queue wait")
    grid = experiment.grid
    known = {grid.time(at) - past.T for at, value in enumerate(finding.values) if value is not None}
    first, last = past.GAP
    assert first in known
    assert last + 4 in known  # a rate takes two samples
    # A look every 2 s sees a sample for up to 3 s.
    assert not known & {first + 4, first + 10, last - 2}
    assert len(column_runs(finding.values, gap=0)) == 2


def test_a_rank_that_is_gone_is_an_event_of_its_time(experiment: Experiment) -> None:
    gone = [each for each in experiment.view.events if each.kind == "gone"]
    assert [(each.component.label, each.time - past.T) for each in gone] == [
        ("rollout 2", past.GONE)
    ]


def test_victoriametrics_tells_the_same(experiment: Experiment, store_url: str) -> None:
    other = experiment_of(store_url)
    for name in ("injected", "detected", "localised", "first_error", "last_error", "ended"):
        assert after(other, name) == after(experiment, name), name
    assert other.diagnosis == experiment.diagnosis
    assert other.roles == experiment.roles
    ours = series(experiment, "train 1", "scalar (batch_size)")
    theirs = series(other, "train 1", "scalar (batch_size)")
    assert theirs.baseline.mean == ours.baseline.mean
    assert theirs.deviated == ours.deviated


def test_the_command_writes_page_values_and_figures(
    contention_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    given = ["report", "experiment", "--prometheus", contention_url, "--fault", "cpu-1"]
    assert main([*given, "--output", str(target)]) == 0
    names = {file.name for file in target.iterdir()}
    figures = {f"{name}.{kind}" for name in ("propagation", "anomaly") for kind in ("svg", "pdf")}
    assert names == {"report.html", "report.json", "report.csv"} | figures
    out = capsys.readouterr()
    assert out.out.splitlines()[0] == str(target / "report.html")
    assert out.err == ""  # progress is for terminals
    record = json.loads((target / "report.json").read_text())
    assert record["milestones"]["detected"]["time"] == past.T + past.DETECTED
    assert record["alone"]["localised"]["time"] is None
    series = {(each["component"], each["title"]): each for each in record["view"]["findings"]}
    assert series["rollout 2", "run-queue wait"]["deviated"] == past.T + past.EFFECT


def test_a_baseline_is_as_long_as_something_was_seen(contention_url: str) -> None:
    baseline = experiment_of(contention_url, baseline="20m-before").baseline
    assert baseline.end - baseline.start == pytest.approx(600, abs=3)


def test_a_baseline_that_is_too_short_is_said_to_be(contention_url: str, tmp_path: Path) -> None:
    given = ["report", "experiment", "--prometheus", contention_url, "--fault", "cpu-1"]
    short = f"{past.T - 6:.0f}..{past.T:.0f}"
    page = tmp_path / "page.html"
    assert main([*given, "--output", str(page), "--baseline", short]) == 0
    assert list(tmp_path.iterdir()) == [page]
    text = page.read_text()
    assert "Figure 2: There is no figure: no series has enough samples in the baseline" in text
    assert "No series left its baseline" in text
    assert re.search(r"[1-9]\d+ series have fewer than 5 samples in the baseline", text)
