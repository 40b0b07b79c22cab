"""Stages over time: what makes a baseline, who is slow beside it, and what a stall has cost."""

from __future__ import annotations

import pytest

from tests.alerts.courses import Case, Courses, patient
from tests.alerts.promtool import needs_promtool, series

pytestmark = [needs_promtool, patient, pytest.mark.xdist_group("stage_courses")]

RULES = ("stages.rules.yaml", "stalls.rules.yaml")
played = Courses(RULES)
JOB = {"cluster": "c", "job_id": "7", "role": "train"}
SLOW = "count by (rank) (rank:rl_straggler:ratio)"
OVERDUE = "max by (stage) (rank:rl_stage_overdue:ratio)"


def stages(slow: int, *, completed: int = 40, stage: str = "rollout") -> dict[str, str]:
    """Four ranks that take 4 s each; the last `slow` of them are in the stage from 60 s on, while
    the others complete it once more."""
    given = {
        series("rl_stage_duration_seconds_count", **JOB, node="n", stage=stage): f"{completed}x200"
    }
    for rank in range(4):
        who = {**JOB, "node": "n", "rank": rank}
        late = rank >= 4 - slow
        given[series("rl_rank_up", **who)] = "1x200"
        given[series("rl_rank_stage_last_seconds", **who, stage=stage)] = "4x200"
        given[series("rl_rank_stage_completions_total", **who, stage=stage)] = (
            "10x200" if late else "10x30 11x170"
        )
        given[series("rl_rank_stage_open_seconds", **who, stage=stage)] = (
            "0x30 0+2x170" if late else "1x200"
        )
    return given


@played((1, {'{rank="3"}': 1.0}), (2, {}), (3, {}), ids=["one", "half", "most"])
def test_only_a_minority_is_slow_beside_its_peers(slow: int, named: dict[str, float]) -> Case:
    return Case(stages(slow), [(SLOW, "100s", named)])


@played(
    (False, None, {}),
    (True, None, {'{rank="3"}': 1.0}),
    (True, 20, {}),
    (True, 50, {'{rank="3"}': 1.0}),
    ids=["not", "nothing-known", "waits-for-its-peers", "its-peers-are-done"],
)
def test_a_rank_that_was_started_again_is_behind_only_where_its_peers_have_gone_on(
    again: bool, peers_done: int | None, named: dict[str, float]
) -> Case:
    """It entered at 30 s, has completed the stage thrice and they five hundred times; they were
    done for the last time at `peers_done`, and have not come to the stage again."""
    stage = {"stage": "weights_update"}
    given = {series("rl_stage_duration_seconds_count", **JOB, node="n", **stage): "40x200"}
    for rank in range(4):
        who = {**JOB, "node": "n", "rank": rank}
        late = rank == 3
        given[series("rl_rank_up", **who)] = "1x200"
        given[series("rl_rank_stage_last_seconds", **who, **stage)] = "4x200"
        given[series("rl_rank_stage_completions_total", **who, **stage)] = (
            "3x200" if late and again else "500x200"
        )
        if late:
            given[series("rl_rank_stage_open_seconds", **who, **stage)] = "_x15 0+2x180"
        elif peers_done is not None:
            looks = peers_done // 2
            given[series("rl_rank_stage_completed_age_seconds", **who, **stage)] = (
                f"_x{looks} 0+2x{199 - looks}"
            )
    return Case(given, [(SLOW, "80s", named)])


@played((2, {}), (3, {'{rank="3"}': 1.0}), ids=["two", "three"])
def test_there_is_no_baseline_before_three_completions(
    completed: int, named: dict[str, float]
) -> Case:
    baseline = {'{stage="rollout"}': 4.0} if named else {}
    median = "max by (stage) (job_role_stage:rl_stage_baseline_median:seconds)"
    return Case(
        stages(1, completed=completed),
        [(SLOW, "100s", named), (median, "100s", baseline)],
    )


@played(("init",), ("eval",), ("checkpoint",))
def test_a_stage_that_is_long_by_nature_is_overdue_after_five_minutes_at_least(stage: str) -> Case:
    overdue = {series("", stage=stage): 75.5}
    return Case(
        stages(4, stage=stage),
        [(OVERDUE, "362s", {}), (OVERDUE, "364s", overdue)],
    )


@played((False,), (True,), ids=["in-order", "backwards"])
def test_what_stalls_have_cost_is_kept_while_the_job_is_at_work(backwards: bool) -> Case:
    """Two ranks with a GPU each hang for a minute, work for eight, and hang again."""
    given = {}
    bucket = {**JOB, "node": "n", "stage": "train"}
    for bound in ("1.0", "+Inf"):
        given[series("rl_progress_gap_seconds_bucket", **bucket, le=bound)] = "90x400"
    given[series("rl_progress_gap_seconds_count", **bucket)] = "90x400"
    for rank in range(2):
        who = {**JOB, "node": "n", "rank": rank}
        given[series("rl_rank_up", **who)] = "1x400"
        given[series("rl_rank_wait_class", **who, **{"class": "spin"})] = "1x400"
        given[series("rl_rank_info", **who, pid=rank, uuid=f"GPU-{rank}")] = "1x400"
        for name, labels in (
            ("rl_rank_progress_age_seconds", {}),
            ("rl_rank_stage_open_seconds", {"stage": "train"}),
        ):
            given[series(name, **who, **labels)] = "0x30 12+2x29 0x240 12+2x99"
    total = "max by (job_id) (job:rl_wasted_gpu_seconds:total)"
    one = {'{job_id="7"}': 120.0}
    return Case(
        given,
        [(total, "50s", {'{job_id="7"}': 0.0})]
        + [(total, f"{when}s", one) for when in (130, 300, 500, 600)]
        + [(total, "662s", {'{job_id="7"}': 240.0})],
        backwards=backwards,
    )
