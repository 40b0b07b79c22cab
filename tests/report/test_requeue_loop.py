"""The recovery report of a job that fails at its start again and again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.periods import Period
from stagewatch.report.recovery import Asked, make_recovery
from tests.report.filled import Past, filled_prometheus
from tests.report.hyperpod import T

JOB = "5"
DETECTED = T + 30


def looping() -> Past:
    """Ten minutes of a job that no look has seen running: it waits, and is tried every 20 s."""
    past = Past(T - 300, T + 300, step=5.0)
    past.add("up", 1.0, cluster="c", job="stagewatch-slurm")
    past.add("slurm_source_success", 1.0, cluster="c", source="jobs")
    past.add("slurm_job_restarts", lambda when: max(0.0, (when - T) // 20), cluster="c", job_id=JOB)
    past.add(
        "ALERTS",
        lambda when: 1.0 if when >= DETECTED else None,
        cluster="c",
        alertname="SlurmRequeueLoop",
        alertstate="firing",
        job_id=JOB,
    )
    return past


def test_alert_on_a_job_that_never_ran_counts_as_detected(
    children: Children, tmp_path: Path
) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus, from Debian's package of that name")
    api = PrometheusApi(filled_prometheus(children, tmp_path / "p", looping()))
    try:
        period = Period(T - 300, T + 300)
        found = make_recovery(api, Asked(period, period)).clusters[0].incidents
    finally:
        api.close()
    assert [each.incident.jobs for each in found] == [(JOB,)]
    assert [(each.detected, each.detected_by) for each in found] == [(DETECTED, "SlurmRequeueLoop")]
    assert [each.ended for each in found] == [None]
