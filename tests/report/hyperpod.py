"""S3's story by hand, with its own times: a GPU process killed, a drain, a new node, a resumption.

Times are seconds after the injection, `T`.  Scraped every 5 s.
"""

from __future__ import annotations

import time

from tests.report.filled import Past, Value

T = time.time() // 300 * 300 - 3 * 3600
CLUSTER = "hyperpod"
JOB = "77"
NODES = ("n1", "n2")
DETECTED = 135.0
DRAINED = 225.0
JOB_ENDED = 320.0
NODE_BACK = 1050.0
RESUMED = 1095.0
FIRST_STEP = 1125.0
"""When the first step after the resumption ends; steps take 30 s."""
START, END = -3600.0, 3600.0
BLIND = (2000.0, 2100.0)
"""Nothing was scraped in between."""
FAILED_SCRAPES = (-600.0, -580.0)
"""The agent of n2 did not answer."""


def hyperpod(*, hostile: str = "") -> Past:
    """Two hours of a cluster of two nodes with a job over both."""
    past = Past(T + START, T + END, step=5.0)
    for node in NODES:
        past.add("up", _seen(_up(node)), cluster=CLUSTER, job="stagewatch", node=node)
        past.add(
            "slurm_job_node", _seen(_running), cluster=CLUSTER, job_id=JOB, node=node, gpus="0-3"
        )
        past.add("rl_rank_up", _seen(_running), **_rank(node))
        past.add("rl_rank_info", _seen(_running), **_rank(node), pid="1", uuid=f"GPU-{node}")
        past.add("rl_rank_step", _seen(_step), **_rank(node))
    past.add("up", _seen(lambda after: 1.0), cluster=CLUSTER, job="stagewatch-slurm")
    past.add("slurm_source_success", _seen(lambda after: 1.0), cluster=CLUSTER, source="jobs")
    past.add("slurm_cluster_nodes", _seen(lambda after: 2.0), cluster=CLUSTER, state="IDLE")
    past.add("slurm_job_info", _seen(_running), cluster=CLUSTER, job_id=JOB, user="u")
    past.add("slurm_job_gpus", _seen(_scaled(_running, 8.0)), cluster=CLUSTER, job_id=JOB)
    past.add(
        "slurm_job_restarts",
        _seen(lambda after: 0.0 if after < JOB_ENDED else 1.0),
        cluster=CLUSTER,
        job_id=JOB,
    )
    past.add(
        "slurm_node_unavailable_info",
        _seen(_within(DRAINED, NODE_BACK)),
        cluster=CLUSTER,
        node="n1",
        kind="drain",
        reason=hostile or "HMA: GPU fault",
        reason_class="hardware",
        user="root",
    )
    for name, value in (("active", 1.0), ("start_timestamp_seconds", T)):
        past.add(
            f"fault_injection_{name}",
            _seen(_within(0, 60, value)),
            cluster=CLUSTER,
            node="n1",
            id="kill-1",
            **({"fault_type": "process_kill", "target_worker": "n1"} if name == "active" else {}),
        )
    past.add(
        "ALERTS",
        _seen(_within(DETECTED, 400)),
        cluster=CLUSTER,
        alertname="JobStalled",
        alertstate="firing",
        severity="critical",
        job_id=JOB,
        node="n1",
    )
    past.add("rl_scalar", _seen(_throughput), **_rank("n1"), name="samples_per_second")
    # What a killed rank leaves behind is shown as it was at its end, and counts for nothing.
    dead = {**_rank("n2"), "rank": "9"}
    past.add("rl_rank_up", _seen(_within(JOB_ENDED, END, 0.0)), **dead)
    past.add("rl_rank_step", _seen(_within(JOB_ENDED, END, 1130.0)), **dead)
    left = _seen(_within(JOB_ENDED, END, 1250.0))
    past.add("rl_scalar", left, **dead, name="samples_per_second")
    # Four GPUs stood still for 180 s before the job ended.
    past.add(
        "job:rl_wasted_gpu_seconds:total",
        _seen(lambda after: 4.0 * min(max(after - 100.0, 0.0), 180.0)),
        cluster=CLUSTER,
        job_id=JOB,
        role="train",
    )
    past.add(
        "slurm_jobs_ended_total",
        _seen(lambda after: 3.0 if after < JOB_ENDED else 4.0),
        cluster=CLUSTER,
        partition="p",
        state="NODE_FAIL",
    )
    return past


def _rank(node: str) -> dict[str, str]:
    rank = str(NODES.index(node))
    return {"cluster": CLUSTER, "node": node, "job_id": JOB, "role": "train", "rank": rank}


def _up(node: str) -> Value:
    first, last = FAILED_SCRAPES
    return lambda after: 0.0 if node == "n2" and first <= after < last else 1.0


def _running(after: float) -> float | None:
    return None if JOB_ENDED <= after < RESUMED else 1.0


def _step(after: float) -> float | None:
    """A step is 30 s; the job goes on from step 1000, having reached 1130 at its end."""
    if after < JOB_ENDED:
        return float((after - START) // 30 + 1000)
    return None if after < RESUMED else float((after - RESUMED) // 30 + 1120)


def _throughput(after: float) -> float | None:
    return _running(after) and (1250.0 if after < JOB_ENDED else 1180.0)


def _scaled(of: Value, factor: float) -> Value:
    return lambda after: None if (value := of(after)) is None else factor * value


def _within(start: float, end: float, value: float = 1.0) -> Value:
    return lambda after: value if start <= after < end else None


def _seen(of: Value) -> Value:
    return lambda when: None if BLIND[0] < when - T < BLIND[1] else of(when - T)
