"""Stages over time: what makes a baseline, who is slow beside it, and who has only raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.judgement.judge import failed
from tests.alerts.courses import Case, play_together
from tests.alerts.promtool import needs_promtool, play, series
from tests.judgement.jobs import job

pytestmark = needs_promtool

RULES = ("stages.rules.yaml", "stalls.rules.yaml")
JOB = {"cluster": "c", "job_id": "7", "role": "train"}
SLOW = "count by (rank) (rank:rl_straggler:ratio)"


def of_node(stage: str, completed: str) -> dict[str, str]:
    """What the agent of one node sums up of its four ranks."""
    sums = {"rl_stage_completions": completed, "rl_stage_completed_ranks": "4x200"}
    given = {series(name, **JOB, node="n", stage=stage): values for name, values in sums.items()}
    return given | {series("rl_ranks_live", **JOB, node="n"): "4x200"}


def stages(slow: int, *, completed: int = 40) -> dict[str, str]:
    """Four ranks that take 4 s each; the last `slow` of them are in the stage from 60 s on, while
    the others complete it once more."""
    given = {
        series(
            "rl_stage_duration_seconds_count", **JOB, node="n", stage="rollout"
        ): f"{completed}x200"
    }
    ahead = 11 if slow < 2 else 10.5 if slow == 2 else 10
    given |= of_node("rollout", f"10x30 {ahead}x170")
    for rank in range(4):
        who = {**JOB, "node": "n", "rank": rank}
        late = rank >= 4 - slow
        given[series("rl_rank_stage_last_seconds", **who, stage="rollout")] = "4x200"
        given[series("rl_rank_stage_open_completions", **who, stage="rollout")] = (
            "10x200" if late else "10x30 11x170"
        )
        given[series("rl_rank_stage_open_long_seconds", **who, stage="rollout")] = (
            "0x30 0+2x170" if late else "1x200"
        )
    return given


def few_slow(slow: int, named: dict[str, float]) -> Case:
    """So many of four are slow."""
    return Case(stages(slow), [(SLOW, "100s", named)])


def started_again(again: bool, peers_done: int | None, named: dict[str, float]) -> Case:
    """A rank entered at 30 s, has completed the stage thrice and its peers five hundred times;
    they were done for the last time at `peers_done`, and have not come to the stage again."""
    stage = {"stage": "weights_update"}
    given = {series("rl_stage_duration_seconds_count", **JOB, node="n", **stage): "40x200"}
    given |= of_node(stage["stage"], "500x200")
    for rank in range(4):
        who = {**JOB, "node": "n", "rank": rank}
        given[series("rl_rank_stage_last_seconds", **who, **stage)] = "4x200"
        if rank == 3:
            given[series("rl_rank_stage_open_completions", **who, **stage)] = (
                "3x200" if again else "500x200"
            )
            given[series("rl_rank_stage_open_long_seconds", **who, **stage)] = "_x15 0+2x180"
    if peers_done is not None:
        looks = peers_done // 2
        given[series("rl_stage_completed_age_seconds", **JOB, node="n", **stage)] = (
            f"_x{looks} 0+2x{199 - looks}"
        )
    return Case(given, [(SLOW, "80s", named)])


def taught(completed: int, named: dict[str, float]) -> Case:
    """The job has completed the stage so often."""
    baseline = {'{stage="rollout"}': 4.0} if named else {}
    median = "max by (stage) (job_role_stage:rl_stage_baseline_median:seconds)"
    return Case(stages(1, completed=completed), [(SLOW, "100s", named), (median, "100s", baseline)])


def test_who_is_slow_beside_its_peers(tmp_path: Path) -> None:
    """A minority, once a baseline is made of three completions; and of those that were started
    again, one whose peers have gone on."""
    third = {'{rank="3"}': 1.0}
    cases = {
        "one is slow": few_slow(1, third),
        "half are slow": few_slow(2, {}),
        "most are slow": few_slow(3, {}),
        "not started again": started_again(False, None, {}),
        "peers not seen": started_again(True, None, third),
        "peers wait": started_again(True, 20, {}),
        "peers are done": started_again(True, 50, third),
        "two completions": taught(2, {}),
        "three completions": taught(3, third),
    }
    play_together(tmp_path, RULES, cases)


@pytest.mark.parametrize(
    ("progress_age", "given_up"), [(94.9, False), (95.1, True)], ids=["went-on", "gave-up"]
)
def test_the_rules_and_the_judge_give_an_exception_as_long_to_settle(
    progress_age: float, given_up: bool, tmp_path: Path
) -> None:
    """A mark of progress within five seconds of an exception 100 s ago is the exception's own."""
    (rank,) = job(1, {"progress_age_seconds": progress_age, "first_failure_age_seconds": 100.0})
    assert failed([rank]) is given_up
    key = {"cluster": "c", "job_id": rank.job_id, "role": rank.role}
    shown = {
        "rl_rank_up": 1,
        "rl_rank_progress_age_seconds": progress_age,
        "rl_rank_first_failure_timestamp_seconds": 20,
    }
    given = {series(name, **key, node="n0", rank=0): f"{value}x60" for name, value in shown.items()}
    expected = {series("role:rl_given_up:ranks", **key): 1} if given_up else {}
    asked = [("role:rl_given_up:ranks", "120s", expected)]
    play(tmp_path, ["stages.rules.yaml"], given, asked, interval="2s")
