"""Ranks of made-up jobs, as `inspect` finds them."""

from __future__ import annotations

import dataclasses
from typing import Any

from stagewatch.judgement.facts import Inside, RankFacts
from stagewatch.judgement.judge import Verdict, judge
from stagewatch.ranks.wait_class import WaitClass

HEALTHY = RankFacts(
    job_id="540",
    role="train",
    rank=0,
    pid=4000,
    world_size=8,
    stage="train",
    substage="",
    stage_open_seconds=2.0,
    step=220,
    progress_age_seconds=2.0,
    budget_seconds=15.0,
    collectives={"world": 220},
    state="R",
    wait_channel="",
    cpu_ratio=1.0,
    wait_class=WaitClass.COMPUTE,
    first_failure="",
    first_failure_time=None,
    first_failure_age_seconds=None,
    stages=frozenset({"train"}),
)
SPINNING: dict[str, Any] = {
    "progress_age_seconds": 412.0,
    "wait_class": WaitClass.SPIN,
    "inside": {"world": Inside("all_reduce", 410.0)},
}
PARKED: dict[str, Any] = {
    "progress_age_seconds": 412.0,
    "wait_class": WaitClass.PARKED,
    "state": "S",
    "wait_channel": "futex_do_wait",
    "cpu_ratio": 0.0,
    "inside": {},
}
LEFT = PARKED | {"stage": "cleanup", "collectives": {"world": 219}}


def job(
    size: int,
    common: dict[str, Any] | None = None,
    *,
    role: str = "train",
    job_id: str = "540",
    **special: dict[str, Any],
) -> list[RankFacts]:
    """`size` ranks that are alike, but for those named as `rank_3={...}`."""
    return [
        dataclasses.replace(
            HEALTHY,
            **{"job_id": job_id, "role": role, "rank": rank, "pid": 4000 + rank}
            | (common or {})
            | special.get(f"rank_{rank}", {}),
        )
        for rank in range(size)
    ]


def verdict(ranks: list[RankFacts]) -> Verdict:
    """That of the only role of the only job."""
    (found,) = judge(ranks)
    return found
