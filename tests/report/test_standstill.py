"""The recovery report of a job whose ranks gave up, and live on without doing anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.periods import Period
from stagewatch.report.phases import Phases
from stagewatch.report.recovery import Asked, make_recovery
from tests.report.filled import Past, filled_prometheus
from tests.report.hyperpod import T

STEP_SECONDS = 10.0
LAST_STEP = T + 0.0


def given_up(step: Callable[[float], float]) -> Past:
    """Twenty minutes of a job of which a rollout worker dies at T + 5."""
    past = Past(T - 600, T + 600, step=5.0)
    past.add("up", 1.0, cluster="c", job="stagewatch", node="n1")
    rank = {"cluster": "c", "node": "n1", "job_id": "700", "role": "train", "rank": "0"}
    past.add("rl_rank_up", 1.0, **rank)
    past.add("rl_rank_info", 1.0, **rank, pid="1", uuid="GPU-1")
    past.add("rl_rank_step", step, **rank)
    past.add(
        "job:rl_stall:culprit",
        lambda when: 1.0 if T + 5 <= when < T + 65 else None,
        **{**rank, "role": "rollout", "rank": "3", "evidence": "process_gone"},
    )
    return past


def found(children: Children, directory: Path, step: Callable[[float], float]) -> Phases:
    """The only incident."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus, from Debian's package of that name")
    api = PrometheusApi(filled_prometheus(children, directory / "p", given_up(step)))
    try:
        period = Period(T - 600, T + 600)
        (incident,) = make_recovery(api, Asked(period, period)).clusters[0].incidents
        return incident
    finally:
        api.close()


def steps_until(last: float) -> Callable[[float], float]:
    """One each ten seconds, and none after."""
    return lambda when: (min(when, last) - T + 600) // STEP_SECONDS


def test_job_that_completes_no_step_any_more_was_hit(children: Children, tmp_path: Path) -> None:
    incident = found(children, tmp_path, steps_until(LAST_STEP))
    (job,) = incident.jobs
    assert job.standstill is not None
    assert (job.standstill.start, job.goes_on) == (LAST_STEP, False)
    assert incident.downtime is not None
    assert not incident.restored


def test_standstill_ends_with_the_next_step(children: Children, tmp_path: Path) -> None:
    def step(when: float) -> float:
        return steps_until(LAST_STEP)(when) + max(0.0, (when - T - 200) // STEP_SECONDS)

    incident = found(children, tmp_path, step)
    assert incident.jobs[0].goes_on
    assert incident.downtime is not None
    assert incident.downtime.end == T + 210
    assert incident.restored


def test_job_that_goes_on_without_the_rank_was_not_hit(children: Children, tmp_path: Path) -> None:
    incident = found(children, tmp_path, steps_until(T + 9999))
    assert not incident.jobs[0].interrupted
    assert incident.downtime is None
