"""The recovery report of S3's own story, from real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagewatch.cli import main
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.periods import Period
from stagewatch.report.phases import Phases
from stagewatch.report.recovery import Asked, ClusterRecovery, Slo, make_recovery
from tests.report import hyperpod as past

PERIOD = Period(past.T + past.START, past.T + past.END)
MONTH = Period(past.T, past.T + 30 * 86400)
"""Of which the error budget is."""


def made(url: str) -> ClusterRecovery:
    """What a server knows of the cluster."""
    api = PrometheusApi(url)
    try:
        return make_recovery(api, Asked(PERIOD, MONTH, cluster=past.CLUSTER)).clusters[0]
    finally:
        api.close()


@pytest.fixture(scope="package")
def recovery(hyperpod_url: str) -> ClusterRecovery:
    """From Prometheus."""
    return made(hyperpod_url)


def the_failure(recovery: ClusterRecovery) -> Phases:
    """The incident that hit the job."""
    return next(each for each in recovery.incidents if each.downtime)


def test_the_phases_are_those_of_the_story(recovery: ClusterRecovery) -> None:
    found = the_failure(recovery)
    assert found.injected == past.T
    assert found.detected == past.T + past.DETECTED
    assert found.detected_by == "JobStalled"
    assert found.drained == past.T + past.DRAINED
    # An end is seen when the next look finds nothing, 1.5 intervals after the last sample.
    assert found.ended == past.T + past.JOB_ENDED + 5
    assert found.node_back == past.T + past.NODE_BACK + 5
    assert found.resumed == past.T + past.RESUMED
    assert found.restored


def test_downtime_is_from_the_injection_to_the_first_step_after(recovery: ClusterRecovery) -> None:
    found = the_failure(recovery)
    assert found.downtime == Period(past.T, past.T + past.FIRST_STEP)
    assert recovery.slo.downtime == past.FIRST_STEP
    assert recovery.slo.budget == pytest.approx(43.2 * 60)
    assert recovery.slo.verdict == "met"
    assert recovery.slo.left == pytest.approx(43.2 * 60 - past.FIRST_STEP)


def test_wasted_gpu_hours_are_those_that_stood_still_and_those_without_the_job(
    recovery: ClusterRecovery,
) -> None:
    assert recovery.stalled_gpu_hours == pytest.approx(4 * 180 / 3600, rel=0.01)
    without = past.FIRST_STEP - (past.JOB_ENDED + 5)
    assert recovery.interrupted_gpu_hours == pytest.approx(8 * without / 3600)


def test_time_without_any_scrape_is_not_seen(recovery: ClusterRecovery) -> None:
    assert recovery.slo.unseen == 90  # 100 s, of which the first 7.5 s still see a sample


def test_an_agent_that_fell_silent_is_an_incident_that_hit_no_job(
    recovery: ClusterRecovery,
) -> None:
    silent = next(each for each in recovery.incidents if not each.downtime)
    assert silent.incident.nodes == ("n2",)
    assert silent.began == past.T + past.FAILED_SCRAPES[0] + 5  # until then a success is seen
    assert silent.detected is None


def test_the_command_writes_all_for_a_period(hyperpod_url: str, tmp_path: Path) -> None:
    begin, end = str(PERIOD.start), str(PERIOD.end)
    given = ["report", "recovery", "--prometheus", hyperpod_url, "--from", begin, "--to", end]
    assert main([*given, "--output", str(tmp_path)]) == 0
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"report.html", "report.json"}
    cluster = json.loads((tmp_path / "report.json").read_text())["clusters"][0]
    assert cluster["slo"]["verdict"] == "missed"  # 7.2 s are all that two hours may lose
    first, second = cluster["incidents"]
    assert first["downtime"] is first["resumed"] is None  # not seen, which is not zero
    assert second["downtime"]["end"] - second["downtime"]["start"] == 1125


@pytest.mark.parametrize(
    ("downtime", "unseen", "seen", "verdict"),
    [
        (0.0, 0.0, True, "met"),
        (2592.0, 0.0, True, "met"),
        (2593.0, 0.0, True, "missed"),
        (1000.0, 1600.0, True, "undecided"),
        (2593.0, 9999.0, True, "missed"),
        (0.0, 0.0, False, "undecided"),
    ],
)
def test_unseen_time_decides_nothing(
    downtime: float, unseen: float, seen: bool, verdict: str
) -> None:
    month = 30 * 86400.0
    found = Slo(0.999, month, month + 1e-6, downtime, unseen, seen)
    assert found.verdict == verdict
    assert (found.availability is None) is not seen
