"""Stages over time: what makes a baseline, who is slow beside it, and who has only raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.judgement.judge import failed
from tests.alerts.courses import Case, Courses, patient
from tests.alerts.promtool import needs_promtool, play, series
from tests.judgement.jobs import job
from tests.judgement.series import series_of

pytestmark = [needs_promtool, patient, pytest.mark.xdist_group("stage_courses")]

RULES = ("stages.rules.yaml", "stalls.rules.yaml")
played = Courses(RULES)
JOB = {"cluster": "c", "job_id": "7", "role": "train"}
SLOW = "count by (rank) (rank:rl_straggler:ratio)"
LAST = {'{rank="3"}': 1.0}


def stages(
    slow: int, *, completed: int = 40, usual: float = 4, done: int = 68, lost: int = 0
) -> dict[str, str]:
    """Four ranks that take the usual time for a rollout; the last `slow` are in it from 60 s on,
    while the others complete it once more at `done`, an even number of seconds.

    The late ones count `lost` less beside that, as after a restart.
    """
    stage = {"stage": "rollout"}
    given = {
        series("rl_stage_duration_seconds_count", **JOB, node="n", **stage): f"{completed}x200"
    }
    for rank in range(4):
        who = {**JOB, "node": "n", "rank": rank}
        late = rank >= 4 - slow
        looks = done // 2
        given[series("rl_rank_up", **who)] = "1x200"
        given[series("rl_rank_stage_last_seconds", **who, **stage)] = f"{usual}x200"
        given[series("rl_rank_stage_completions_total", **who, **stage)] = (
            f"{10 - lost}x200" if late else f"10x{looks - 1} 11x{200 - looks}"
        )
        given[series("rl_rank_stage_completed_age_seconds", **who, **stage)] = (
            "2+2x200" if late else f"2+2x{looks - 1} 0+2x{200 - looks}"
        )
        given[series("rl_rank_stage_open_seconds", **who, **stage)] = (
            "_x30 0+2x170" if late else "1x200"
        )
    return given


def inside(rank: int) -> dict[str, str]:
    """The rank is inside a broadcast from 62 s on."""
    call = {"group": "world", "op": "broadcast"}
    name = "rl_rank_collective_inside_seconds"
    return {series(name, **JOB, node="n", rank=rank, **call): "_x31 1+2x160"}


@played((1, LAST), (2, {}), (3, {}), ids=["one", "half", "most"])
def test_only_a_minority_is_slow_beside_its_peers(slow: int, named: dict[str, float]) -> Case:
    return Case(stages(slow), [(SLOW, "100s", named)])


@played(
    (64, 0, LAST),
    (64, 1, LAST),
    (64, 400, LAST),
    (60, 1, {}),
    (60, 400, {}),
    (30, 1, {}),
    ids=["no", "once-and-late", "often-and-late", "waits", "waits-with-few-counts", "long-ago"],
)
def test_a_rank_that_was_started_again_is_behind_only_where_its_peers_have_gone_on(
    done: int, lost: int, named: dict[str, float]
) -> Case:
    """Whatever it counts: its peers were done after it had begun, and not a look later."""
    return Case(stages(1, done=done, lost=lost), [(SLOW, "100s", named)])


@played((3.0, 64), (4.0, 66))
def test_a_rank_is_slow_after_twice_the_time_of_its_peers(usual: float, done: int) -> Case:
    """At the first look past it."""
    soon = 60 + 2 * usual
    asked = [(SLOW, f"{soon:.0f}s", {}), (SLOW, f"{soon + 2:.0f}s", LAST)]
    return Case(stages(1, usual=usual, done=done), asked)


@played(
    ({3}, LAST),
    (set(), LAST),
    ({2}, LAST),
    ({2, 3}, {'{rank="2"}': 1.0, '{rank="3"}': 1.0}),
    ids=["inside", "outside", "root-and-late", "both-inside"],
)
def test_the_root_of_a_broadcast_that_waits_is_not_slow(
    within: set[int], named: dict[str, float]
) -> Case:
    """It stays in the collective until the last one has come, while five others have left it."""
    given = stages(1 if within <= {3} else 2)
    for rank in (4, 5):
        given |= {
            name.replace('rank="0"', f'rank="{rank}"'): values
            for name, values in stages(1).items()
            if 'rank="0"' in name
        }
    for rank in within:
        given |= inside(rank)
    return Case(given, [(SLOW, "100s", named)])


@played((2, {}), (3, LAST), ids=["two", "three"])
def test_there_is_no_baseline_before_three_completions(
    completed: int, named: dict[str, float]
) -> Case:
    baseline = {'{stage="rollout"}': 4.0} if named else {}
    median = "max by (stage) (job_role_stage:rl_stage_baseline_median:seconds)"
    return Case(
        stages(1, completed=completed),
        [(SLOW, "100s", named), (median, "100s", baseline)],
    )


@pytest.mark.parametrize(
    ("progress_age", "given_up"), [(94.9, False), (95.1, True)], ids=["went-on", "gave-up"]
)
def test_the_rules_and_the_judge_give_an_exception_as_long_to_settle(
    progress_age: float, given_up: bool, tmp_path: Path
) -> None:
    """A mark of progress within five seconds of an exception 100 s ago is the exception's own."""
    (rank,) = job(1, {"progress_age_seconds": progress_age, "first_failure_age_seconds": 100.0})
    assert failed([rank]) is given_up
    given = {series(name, **labels): f"{value!r}x60" for name, labels, value in series_of(rank)}
    key = {"cluster": "c", "job_id": rank.job_id, "role": rank.role}
    name = "rl_rank_first_failure_timestamp_seconds"
    given[series(name, **key, node="n0", rank=rank.rank)] = "20x60"
    expected = {series("role:rl_given_up:ranks", **key): 1} if given_up else {}
    asked = [("role:rl_given_up:ranks", "120s", expected)]
    play(tmp_path, ["stages.rules.yaml"], given, asked, interval="2s")
