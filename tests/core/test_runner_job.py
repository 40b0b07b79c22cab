"""One collector's job: how it fared is told, and nothing stale is served."""

from __future__ import annotations

import logging
import time

import pytest

from stagewatch.core import runner
from stagewatch.core.errors import NoData, SourceError, Stuck
from stagewatch.core.exposition import Metric
from tests.core.runner_scene import VALUE, Scripted
from tests.fake_clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collector(clock: Clock) -> Scripted:
    return Scripted(clock)


@pytest.fixture
def job(clock: Clock, collector: Scripted) -> runner.Job:
    return runner.Job("test", collector, 1.0, clock=clock)


def health(job: runner.Job, metric: Metric) -> float | None:
    return runner.Runner([job]).health().value(metric, job.name)


def test_a_success_is_kept_and_told(job: runner.Job, collector: Scripted, clock: Clock) -> None:
    collector.takes = 0.25
    before = time.time()
    job.run_once()
    snapshot = job.fresh()
    assert snapshot.samples.value(VALUE) == 1.0
    assert b"test_value_ratio 1.0" in snapshot.text
    assert health(job, runner.SUCCESS) == 1
    assert health(job, runner.DURATION) == 0.25
    assert (health(job, runner.LAST_SUCCESS) or 0) >= before
    assert health(job, runner.NO_DATA) is None
    assert health(job, runner.INTERVAL) == 1.0
    assert (health(job, runner.STUCK), health(job, runner.SKIPPED)) == (0, 0)


def test_a_snapshot_is_dropped_after_three_intervals(job: runner.Job, clock: Clock) -> None:
    job.run_once()
    clock.now += 3.0
    assert job.fresh() is not None
    assert runner.Runner([job]).ready()
    clock.now += 0.01
    assert job.fresh() is None
    assert not runner.Runner([job]).ready()


def test_no_data_is_an_answer_and_takes_the_old_data_away(
    job: runner.Job, collector: Scripted
) -> None:
    job.run_once()
    collector.does = NoData("no GPU")
    job.run_once()
    assert job.fresh() is None
    assert (health(job, runner.NO_DATA), health(job, runner.SUCCESS)) == (1, None)
    assert runner.Runner([job]).ready()
    collector.does = 2.0
    job.run_once()
    assert (health(job, runner.NO_DATA), health(job, runner.SUCCESS)) == (None, 1)


def test_stuck_grows_over_failed_calls_until_one_succeeds(
    job: runner.Job, collector: Scripted, clock: Clock
) -> None:
    collector.does = Stuck("the driver has not answered for 1 s")
    collector.takes = 1.0
    job.run_once()
    assert job.stuck_seconds() == 0  # given up at its deadline, not beyond
    clock.now += 5
    assert job.stuck_seconds() == 5
    collector.takes = 0.0
    job.run_once()
    collector.does = SourceError("the reader is not back yet")
    clock.now += 5
    job.run_once()
    assert job.stuck_seconds() == 10
    collector.does = 1.0
    job.run_once()
    assert job.stuck_seconds() == 0


def test_a_defect_in_a_collector_is_an_error_with_its_type(
    job: runner.Job, collector: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    collector.does = KeyError("temperature")
    job.run_once()
    job.run_once()
    assert job.error == "KeyError: 'temperature'"
    assert health(job, runner.SUCCESS) == 0
    assert len(caplog.records) == 1  # not once a second
    assert caplog.records[0].exc_info is not None
    with caplog.at_level(logging.INFO):
        collector.does = 1.0
        job.run_once()
    assert "works again" in caplog.text
