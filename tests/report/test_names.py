"""Names that look like a part of a query: whatever a node or a job is called, it is found."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.prometheus.api import PrometheusApi
from stagewatch.report.experiment import Wanted, make_experiment
from stagewatch.report.periods import Period
from stagewatch.report.recovery import Asked, make_recovery
from tests.report.filled import Past, Value, filled_prometheus
from tests.report.hyperpod import T

NAMES = ("GCL-gpu-01", "{window}", 'a.b|c "d\\e\nf')
ENDED, BACK = T + 60, T + 200


def named(cluster: str, node: str, job: str) -> Past:
    """A job whose only node is drained, and comes back."""
    past = Past(T - 600, T + 600, step=5.0)
    where = {"cluster": cluster, "node": node}
    rank = {**where, "job_id": job, "role": "train", "rank": "0"}
    out = within(ENDED, BACK)

    def runs(when: float) -> float | None:
        return None if ENDED <= when < BACK else 1.0

    past.add("up", 1.0, **where, job="stagewatch")
    past.add("up", 1.0, cluster=cluster, job="stagewatch-slurm")
    past.add("slurm_source_success", 1.0, cluster=cluster, source="jobs")
    past.add("slurm_node_unavailable_info", out, **where, kind="drain", reason="")
    past.add("slurm_job_info", runs, cluster=cluster, job_id=job)
    past.add("slurm_job_node", runs, **where, job_id=job)
    past.add("rl_rank_up", 1.0, **rank)
    past.add("rl_rank_info", 1.0, **rank, pid="1", uuid="GPU-1")
    past.add("rl_rank_step", lambda when: (when - T + 600) // 10, **rank)
    past.add("rl_scalar", 7.0, **rank, name="JOBS a second")
    past.add("gpu_utilization_ratio", lambda when: 0.9 if when < T + 10 else 0.1, **where, gpu="0")
    marker = {**where, "id": "f-1"}
    past.add("fault_injection_active", within(T, T + 60), **marker, fault_type="x")
    past.add("fault_injection_start_timestamp_seconds", within(T, T + 60, T), **marker)
    return past


def within(start: float, end: float, value: float = 1.0) -> Value:
    """A value between two times."""
    return lambda when: value if start <= when < end else None


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_node_is_found(children: Children, tmp_path: Path, name: str) -> None:
    url = filled_prometheus(children, tmp_path / "p", named(name, name, name))
    period = Period(T - 600, T + 600)
    with closing(PrometheusApi(url)) as api:
        experiment = make_experiment(api, Wanted("f-1"))
        (incident,) = make_recovery(api, Asked(period, period)).clusters[0].incidents
    assert (experiment.job_id, experiment.nodes) == (name, (name,))
    used = [each for each in experiment.view.findings if each.signal.name == "GPU utilisation"]
    assert [each.peak for each in used] == [0.1]
    assert incident.incident.nodes == (name,)
    assert incident.drained == ENDED
    assert [job.job_id for job in incident.jobs] == [name]
