"""The recovery report of jobs that do nothing: their ranks gave up, or they never come to run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.periods import Period
from stagewatch.report.phases import Phases
from stagewatch.report.recovery import Asked, make_recovery
from tests.report.filled import Past, filled_prometheus
from tests.report.hyperpod import T

PERIOD = Period(T - 600, T + 600)
LAST_STEP = T + 0.0
DETECTED = T + 30


def given_up(past: Past, cluster: str, step: Callable[[float], float]) -> None:
    """Twenty minutes of a job of which a rollout worker dies at T + 5."""
    past.add("up", 1.0, cluster=cluster, job="stagewatch", node="n1")
    rank = {"cluster": cluster, "node": "n1", "job_id": "700", "role": "train", "rank": "0"}
    past.add("rl_rank_up", 1.0, **rank)
    past.add("rl_rank_info", 1.0, **rank, pid="1", uuid="GPU-1")
    past.add("rl_rank_step", step, **rank)
    past.add(
        "job:rl_stall:culprit",
        lambda when: 1.0 if T + 5 <= when < T + 65 else None,
        **{**rank, "role": "rollout", "rank": "3", "evidence": "process_gone"},
    )


def looping(past: Past, cluster: str) -> None:
    """A job that no look has seen running: it waits, and is tried every 20 s."""
    past.add("up", 1.0, cluster=cluster, job="stagewatch-slurm")
    past.add("slurm_source_success", 1.0, cluster=cluster, source="jobs")
    past.add("slurm_job_restarts", lambda at: max(0.0, (at - T) // 20), cluster=cluster, job_id="5")
    alert = {"alertname": "SlurmRequeueLoop", "alertstate": "firing", "job_id": "5"}
    past.add("ALERTS", lambda at: 1.0 if at >= DETECTED else None, cluster=cluster, **alert)


def steps_until(last: float) -> Callable[[float], float]:
    """One each ten seconds, and none after."""
    return lambda when: (min(when, last) - T + 600) // 10


@pytest.fixture(scope="module")
def incidents(
    children: Children, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Phases]]:
    """Those of each cluster."""
    past = Past(PERIOD.start, PERIOD.end, step=5.0)
    until = steps_until(LAST_STEP)
    given_up(past, "for good", until)
    given_up(past, "for a while", lambda at: until(at) + max(0.0, (at - T - 200) // 10))
    given_up(past, "not at all", steps_until(T + 9999))
    looping(past, "looping")
    url = filled_prometheus(children, tmp_path_factory.mktemp("idle") / "p", past)
    with closing(PrometheusApi(url)) as api:
        clusters = make_recovery(api, Asked(PERIOD, PERIOD)).clusters
    return {each.cluster: list(each.incidents) for each in clusters}


def test_job_that_completes_no_step_any_more_was_hit(incidents: dict[str, list[Phases]]) -> None:
    (incident,) = incidents["for good"]
    (job,) = incident.jobs
    assert (job.standstill.start, job.goes_on) == (LAST_STEP, False)
    assert incident.downtime is not None
    assert not incident.restored


def test_standstill_ends_with_the_next_step(incidents: dict[str, list[Phases]]) -> None:
    (incident,) = incidents["for a while"]
    assert incident.jobs[0].goes_on
    assert incident.downtime.end == T + 210
    assert incident.restored


def test_job_that_goes_on_without_the_rank_was_not_hit(incidents: dict[str, list[Phases]]) -> None:
    (incident,) = incidents["not at all"]
    assert not incident.jobs[0].interrupted
    assert incident.downtime is None


def test_alert_on_a_job_that_never_ran_counts_as_detected(
    incidents: dict[str, list[Phases]],
) -> None:
    (incident,) = incidents["looping"]
    assert incident.incident.jobs == ("5",)
    assert (incident.detected, incident.detected_by) == (DETECTED, "SlurmRequeueLoop")
    assert incident.ended is None
