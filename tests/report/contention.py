"""S1 #2 by hand: rollout worker 2 of 4 starves, train fails with a batch that is too small.

Times are seconds after the injection, `T`.  Ten minutes before it everything is in order: a step
takes 20 s, 12 of them rollout.  Nobody measured these numbers; the tests check what the report
makes of them.
"""

from __future__ import annotations

import time

from tests.report.filled import Past

T = time.time() // 100 * 100 - 7200
CLUSTER = "lab"
JOB = "530"
STEP = 20.0
CODES = {"rollout": 1, "train": 5, "weights_update": 6, "cleanup": 10}
GAP = (40.0, 60.0)
"""Nothing was scraped in between."""

RECORDED = "GPU-recorded-0"

LABELS = {"cluster": CLUSTER, "job_id": JOB}
EFFECT = 10.0
"""First sample of run-queue wait at the starved worker."""
DETECTED = 30.0
KILLED = 68.5
"""By the kernel's clock: the starved worker had no memory left."""
GONE = 70.0
FAILED = 74.0
TIMED_OUT = 96.0
TIMED_OUT_AGAIN = 126.0
"""Not the controller's first exception, so that only the count of them tells."""
FAULT_END = 80.0
CLEAR = 150.0


def contention(*, hostile: str = "") -> Past:
    """The whole history; `hostile` is an ugly text for labels that users can choose."""
    past = Past(T - 600, T + 300)
    for node in ("node-a", "node-b"):
        past.add("up", _scraped(1), cluster=CLUSTER, job="stagewatch", node=node, instance=node)
    past.add(
        "fault_injection_active",
        _between(0, FAULT_END),
        cluster=CLUSTER,
        node="node-a",
        id="cpu-1",
        fault_type=hostile or "cpu_contention",
        target_worker="rollout_worker_2",
        expected_failure_stage="train",
        scenario="S1-2",
    )
    past.add(
        "fault_injection_start_timestamp_seconds",
        _between(0, FAULT_END, T),
        cluster=CLUSTER,
        node="node-a",
        id="cpu-1",
    )
    for role, count in (("controller", 1), ("rollout", 4), ("train", 4)):
        for rank in range(count):
            _rank(past, role, rank, hostile)
    _alert(past, "Straggler", DETECTED, GONE, role="rollout", rank="2", node="node-a")
    _alert(past, "FaultInjected", 2, FAULT_END, id="cpu-1")
    _alert(past, "JobStalled", FAILED + 6, CLEAR, role="train")
    _alert(past, "GPUTemperatureHigh", -100, 300, node="node-b")
    past.add(
        "rl_rank_first_failure_timestamp_seconds",
        _between(FAILED + 2, 300, T + FAILED),
        **LABELS,
        node="node-b",
        role="train",
        rank=0,
        stage="train",
        error=hostile or "DistributedBatchMemoryError",
    )
    past.add(
        "rl_rank_first_failure_timestamp_seconds",
        _between(TIMED_OUT + 2, 300, T + TIMED_OUT),
        **LABELS,
        node="node-a",
        role="controller",
        rank=0,
        stage="cleanup",
        error="Timeout",
    )
    past.add(
        "log_first_match_timestamp_seconds",
        _between(FAILED + 2, 300, T + FAILED - 0.001),
        **LABELS,
        node="node-b",
        role="train",
        rank=0,
        pattern="batch_size_mismatch",
    )
    _failures(past)
    _kernel(past)
    _recorded_gpu(past)
    return past


def _kernel(past: Past) -> None:
    """The kernel kills the starved worker, and something on the other node that is no rank."""
    killed = "log_oom_kill_last_timestamp_seconds"
    victim = {**LABELS, "node": "node-a", "role": "rollout", "rank": 2, "scope": "cgroup"}
    past.add(killed, _between(GONE, 300, T + KILLED), **victim)
    past.add(killed, 10.0 + T - 600, cluster=CLUSTER, node="node-a", scope="cgroup")  # long before
    past.add(killed, _between(20, 300, T + 18.25), cluster=CLUSTER, node="node-b", scope="cgroup")


def _recorded_gpu(past: Past) -> None:
    """A node without a driver replays readings, which rise after the injection as they would
    have anyway; an alert on them fires."""
    gpu = {"cluster": CLUSTER, "node": "node-b", "gpu": "0", "uuid": RECORDED}
    past.add("gpu_info", 1.0, **gpu, model="NVIDIA H100", source="recorded")
    past.add(
        "gpu_utilization_ratio", _scraped_value(lambda after: 0.2 if after < 4 else 0.9), **gpu
    )
    past.add("gpu_xid_last_timestamp_seconds", _between(6, 300, T + 5), **gpu, xid="79")
    _alert(past, "GPUNearSlowdown", 8, 300, **{name: gpu[name] for name in ("node", "gpu", "uuid")})


def _failures(past: Past) -> None:
    """As the agents count them: those that are the first of a rank, and one that is not."""
    for role, stage, error, when in (
        ("train", "train", "DistributedBatchMemoryError", FAILED),
        ("controller", "cleanup", "Timeout", TIMED_OUT),
        ("controller", "cleanup", "SecondTimeout", TIMED_OUT_AGAIN),
    ):
        who = {**LABELS, "node": "node-a", "role": role, "stage": stage, "error": error}
        past.add("rl_stage_failures_total", _between(when, 300), **who)


def _rank(past: Past, role: str, rank: int, hostile: str) -> None:
    node = "node-b" if role == "train" else "node-a"
    who = {**LABELS, "node": node, "role": role, "rank": rank}
    starved = role == "rollout" and rank == 2
    end = GONE if starved else 301.0
    alive = _between(-600, end)
    past.add("rl_rank_info", alive, **who, pid=1000 + rank, uuid="", framework="lab")
    past.add("rl_rank_up", _scraped_value(lambda after: 0.0 if after >= end else 1.0), **who)
    stage = {"controller": "rollout", "rollout": "rollout", "train": "train"}[role]

    def code(after: float) -> float:
        if role == "controller" and after >= FAILED:
            return CODES["cleanup"]
        return CODES[stage] if after % STEP < 12 or after > 0 else 0

    past.add("rl_rank_stage_code", _within(end, code), **who)
    past.add(
        "rl_rank_stage_open_seconds",
        _within(end, lambda after: after % STEP if after <= 0 else after),
        **who,
        stage=stage,
        substage="",
    )
    usual = 12.0 + 0.1 * rank
    past.add("rl_rank_stage_last_seconds", _within(end, lambda after: usual), **who, stage=stage)
    wait = 0.9 if starved else 0.0
    past.add(
        "rl_rank_run_queue_seconds_total",
        _within(end, lambda after: wait * max(0.0, after - EFFECT + 2)),
        **who,
    )
    if role == "train":
        past.add("rl_scalar", _within(end, _batch_size), **who, name=hostile or "batch_size")
        if hostile:
            past.add("rl_scalar", _within(end, lambda after: 1e308), **who, name="huge")


def _batch_size(after: float) -> float:
    return 1500.0 if after >= GONE else 1600.0


def _alert(past: Past, name: str, start: float, end: float, **labels: str) -> None:
    severity = "info" if name == "FaultInjected" else "warning"
    job = {} if "id" in labels or name.startswith("GPU") else {"job_id": JOB}
    past.add(
        "ALERTS",
        _between(start, end),
        cluster=CLUSTER,
        alertname=name,
        alertstate="firing",
        severity=severity,
        **job,
        **labels,
    )


def _scraped(value: float):
    return _scraped_value(lambda after: value)


def _scraped_value(of):
    def value(when: float) -> float | None:
        after = when - T
        return None if GAP[0] < after < GAP[1] else of(after)

    return value


def _within(end: float, of):
    def value(when: float) -> float | None:
        after = when - T
        return of(after) if after < end and not GAP[0] < after < GAP[1] else None

    return value


def _between(start: float, end: float, value: float = 1.0):
    return lambda when: value if start <= when - T < end else None
