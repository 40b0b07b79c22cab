"""A history of the goodput ledger: two days of October 2026 on 24 GPUs, with a gap.  What each GPU
did is a function of time, which tests add up by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache

from tests.report.filled import Past

T = datetime(2026, 10, 5, tzinfo=timezone.utc).timestamp()
"""The first evaluation is a minute later."""
HOUR, DAY = 3600.0, 86400.0
END = T + 2 * DAY
STEP = 60.0
GAP = T + 36 * HOUR, T + 37.5 * HOUR
"""Prometheus was down: evaluations after the first until the second are missing."""
GPUS = {"h100": 16, "a100": 8}

REQUEUED, AGAIN = T + 10 * HOUR, T + 10.5 * HOUR
FIRST_END, STALL, STALL_END = T + 44 * HOUR, T + 27 * HOUR, T + 28 * HOUR
CRASHED = T + 20 * HOUR
AT_RISK, AT_RISK_CRASHED = 12000.0, 9000.0
"""GPU-seconds since the last checkpoint, at the two failures."""

CLUSTER = "east"
Owner = tuple[str, str, str, str, str]
"""Job, user, account, partition and model."""


def owners(hostile: str = "") -> list[Owner]:
    """The jobs; `hostile` stands at the end of each text that somebody may choose."""
    return [
        ("101", "alice", f"nlp{hostile}", "gpu", "h100"),
        ("102", f"{hostile}bob", "vision", "gpu", "a100"),
        ("104", "carol", "nlp", f"short{hostile}", "h100"),
    ]


@cache
def uses(job_id: str, when: float) -> dict[str, float]:
    """The GPUs of a job by state at an evaluation."""
    hours = (when - T) / HOUR
    if job_id == "102":  # without the client
        return {"busy" if int(hours) % 3 else "unused": 4.0}
    if job_id == "104":
        return {"train": 3.0, "slowed": 1.0} if hours <= 20 else {}
    begun = T if when <= REQUEUED else AGAIN
    if REQUEUED < when <= AGAIN or when > FIRST_END:
        return {}
    if when - begun <= 300:
        return {"waiting": 8.0}
    if when - begun <= 900:
        return {"init": 8.0}
    if STALL < when <= STALL_END:
        return {"stalled": 8.0}
    if when % HOUR < 180:
        return {"checkpoint": 8.0}
    return {"train": 6.0, "rollout": 2.0} if when % 600 < 300 else {"train": 7.25, "idle": 0.75}


@cache
def outside(when: float) -> dict[tuple[str, str], float]:
    """The GPUs outside of jobs by model and state: whatever no job holds, and four drained ones."""
    held = dict.fromkeys(GPUS, 0.0)
    for job_id, *_, model in owners():
        held[model] += sum(uses(job_id, when).values())
    free = {(model, "free"): GPUS[model] - held[model] for model in GPUS}
    free["a100", "free"] -= 4
    return {**free, ("a100", "drained"): 4.0}


def evaluations() -> Iterator[float]:
    """When the rules were evaluated in October."""
    at = T + STEP
    while at <= END:
        if not GAP[0] < at <= GAP[1]:
            yield at
        at += STEP


def paid(hostile: str = "") -> Past:
    """October with its states, requeues and alerts."""
    past = Past(T + STEP, END, step=STEP)
    seen = set(evaluations())

    def add(name: str, of, /, **labels: object) -> None:  # type: ignore[no-untyped-def]
        past.add(
            name, lambda when: of(when) if when in seen else None, **{"cluster": CLUSTER, **labels}
        )

    for job_id, user, account, partition, model in owners(hostile):
        for state in sorted({state for when in seen for state in uses(job_id, when)}):
            add(
                "job:goodput_gpus:count",
                lambda when, job_id=job_id, state=state: uses(job_id, when).get(state),
                job_id=job_id,
                user=user,
                account=account,
                partition=partition,
                model=model,
                state=state,
            )
    for model, state in outside(T + STEP):
        add(
            "cluster:goodput_gpus:count",
            lambda when, key=(model, state): outside(when)[key],
            model=model,
            state=state,
        )

    def between(start: float, end: float, value: float = 1.0):  # type: ignore[no-untyped-def]
        return lambda when: value if start < when <= end else None

    risk = "job:goodput_at_risk:gpu_seconds"
    add(risk, between(T, REQUEUED - 120, AT_RISK), job_id="101")  # its ranks died 2 min before
    add(risk, lambda when: 80.0 if AGAIN + 900 < when <= FIRST_END else None, job_id="101")
    add(risk, between(T, CRASHED, AT_RISK_CRASHED), job_id="104")
    slurm = {"job_id": "101", "partition": "gpu", "user": "alice"}
    add("slurm_job_requeue_timestamp_seconds", between(REQUEUED, FIRST_END, REQUEUED), **slurm)
    add(
        "slurm_job_start_timestamp_seconds",
        lambda when: None if REQUEUED < when <= AGAIN else T if when <= REQUEUED else AGAIN,
        job_id="101",
    )
    add("slurm_job_gpus", between(T, REQUEUED, 8.0), job_id="101")
    rank = {"job_id": "101", "role": f"train{hostile}", "rank": "5", "node": f"n2{hostile}"}
    alert = {"alertstate": "firing", "severity": "critical"}
    alert |= {"alertname": "JobStalled", "evidence": "process_gone"}
    add("ALERTS", between(STALL, STALL_END), **rank, **alert)
    gone = {"job_id": "104", "role": "train", "rank": "1", "node": "n3"}
    add("ALERTS", between(CRASHED - 90, CRASHED), **gone, **alert)
    return past
