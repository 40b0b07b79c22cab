"""Every threshold of the judge: jobs just under and just over each have other verdicts."""

from __future__ import annotations

from typing import Any

from stagewatch.judgement.judge import judge
from tests.judgement.cases import (
    COMPUTE,
    IO,
    LATE,
    PARKED,
    POLL,
    SPIN,
    WORLD,
    Differences,
    absent,
    inside,
    member,
    with_budget,
)
from tests.judgement.jobs import job
from tests.judgement.made_up import made_up_jobs


def aged(seconds: float, **more: Any) -> Differences:
    return {"progress_age_seconds": seconds, **more}


def some(count: int, difference: Differences) -> dict[int, Differences]:
    return dict.fromkeys(range(count), difference)


ALONE: Differences = {"collectives": {}}
OUTSIDE: Differences = {"inside": {}}
WORK = COMPUTE | {"at_work": True}
THRESHOLDS: dict[str, tuple[int, Differences, dict[int, Differences], dict[int, Differences]]] = {
    "budget-taught": (1, ALONE, {0: aged(11.8)}, {0: aged(11.95)}),
    "budget-untaught": (2, ALONE, {0: aged(29, stage="reward")}, {0: aged(31, stage="reward")}),
    **{
        f"still-{stage}": (2, ALONE | POLL, {0: aged(59, stage=stage)}, {0: aged(61, stage=stage)})
        for stage in ("checkpoint", "init", "eval")
    },
    **{
        f"patience-{stage}": (
            2,
            ALONE,
            {0: aged(seconds - 1, stage=stage)},
            {0: aged(seconds + 1, stage=stage)},
        )
        for stage, seconds in (("checkpoint", 900), ("init", 1800), ("eval", 1800))
    },
    "one-wait-in-a-save": (
        2,
        ALONE | IO | {"stage": "checkpoint", "storage_wait_seconds": 61.0},
        {0: {"storage_wait_seconds": 59.0}},
        {0: {"storage_wait_seconds": 61.0}},
    ),
    "at-work": (2, ALONE, {0: WORK | aged(71.8)}, {0: WORK | aged(71.95)}),
    "at-work-young": (1, ALONE | WORK | {"gaps": 9}, {0: aged(191.8)}, {0: aged(191.95)}),
    "young": (1, ALONE | WORK | aged(190), {0: {"gaps": 9}}, {0: {"gaps": 10}}),
    "running": (2, WORLD | SPIN | OUTSIDE | aged(71.8), {}, {1: aged(71.95), 0: aged(71.95)}),
    "running-in-no-collective": (
        2,
        WORLD | SPIN | OUTSIDE | aged(71.8),
        {},
        some(2, inside("world", 220, 2)),
    ),
    "running-with-none-told": (2, WORLD | SPIN | OUTSIDE | aged(71.8), {}, some(2, ALONE)),
    "running-all": (2, WORLD | SPIN | OUTSIDE | aged(71.8), {}, {0: PARKED | aged(71.8)}),
    "marks-and-steps": (
        4,
        inside("world", 9, 4) | aged(71.8),
        {0: member(("world", 8, 4)) | aged(2.0)},
        {0: member(("world", 8, 4)) | aged(2.0), **{n: aged(71.95) for n in (1, 2, 3)}},
    ),
    "a-mark": (
        2,
        ALONE,
        {0: aged(10.1, stage="reward", step_age_seconds=60.0)},
        {0: aged(9.9, stage="reward", step_age_seconds=60.0)},
    ),
    "a-mark-after-the-others": (
        2,
        ALONE | aged(14.0),
        {0: aged(9.1, step_age_seconds=60.0)},
        {0: aged(8.9, step_age_seconds=60.0)},
    ),
    "a-step-in-a-taught-stage": (
        2,
        ALONE,
        {0: aged(2.0, step_age_seconds=11.8)},
        {0: aged(2.0, step_age_seconds=11.95)},
    ),
    "a-step-in-an-untaught-stage": (
        2,
        ALONE,
        {0: aged(2.0, stage="reward", step_age_seconds=29.0)},
        {0: aged(2.0, stage="reward", step_age_seconds=31.0)},
    ),
    "younger": (
        8,
        WORLD | {"started": 1000.0},
        {3: inside("world", 4, 8) | {"started": 1005.5}},
        {3: inside("world", 4, 8) | {"started": 1005.0}},
    ),
    "in-io": (6, ALONE, some(3, IO), some(4, IO)),
    "in-a-stage-of-their-own": (
        6,
        ALONE,
        some(2, {"stage": "reward"}),
        some(3, {"stage": "reward"}),
    ),
    "lagging": (
        6,
        inside("world", 9, 6),
        some(2, inside("world", 8, 6)),
        some(3, inside("world", 8, 6)),
    ),
    "passed": (
        6,
        inside("world", 8, 6),
        some(2, inside("world", 9, 6)),
        some(3, inside("world", 9, 6)),
    ),
    "another-operation": (
        6,
        inside("world", 9, 6),
        some(2, inside("world", 9, 6, "barrier")),
        some(3, inside("world", 9, 6, "barrier")),
    ),
    "left": (8, WORLD, {5: absent(30.0)}, {5: absent(35.0)}),
    "most-left": (8, WORLD, some(4, absent()), some(5, absent())),
    "in-a-call": (
        2,
        ALONE | PARKED | {"calls": {"search": 400.0}},
        {1: {"calls": {"search": 9.9}}},
        {1: {"calls": {"search": 10.0}}},
    ),
}
"""Jobs on either side of a threshold: ranks, what they have in common, what makes some differ."""


def test_each_threshold_turns_the_verdict() -> None:
    ranks = [
        with_budget(rank)
        for name, (size, common, *sides) in THRESHOLDS.items()
        for side, special in zip(("under", "over"), sides, strict=True)
        for rank in job(
            size,
            LATE | common,
            job_id=f"{name}-{side}",
            **{f"rank_{number}": difference for number, difference in special.items()},
        )
    ]
    verdicts = {verdict.job_id: verdict for verdict in judge(ranks)}

    def outcome(job_id: str) -> tuple[bool, str, list[int]]:
        one = verdicts[job_id]
        return one.stalled, one.evidence, [rank.rank for rank in one.culprits]

    same = [name for name in THRESHOLDS if outcome(f"{name}-under") == outcome(f"{name}-over")]
    assert same == []


def test_made_up_jobs_have_every_kind_of_verdict() -> None:
    verdicts = [verdict for seed in range(540, 544) for verdict in judge(made_up_jobs(seed))]
    seen = {verdict.evidence for verdict in verdicts}
    assert "missing" in {verdict.evidence for verdict in verdicts if verdict.charges}
    assert seen >= {"", "group_only", "missing", "mismatch", "process_gone", "awaited"}
    assert seen >= {"odd_one_out", "io_blocked", "left_loop_early", "livelock", "stage_differs"}
    assert seen >= {"stack_differs", "role_differs"}
