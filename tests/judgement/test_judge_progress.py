"""What the verdict says of jobs at work, and of those that have stopped since they raised."""

from __future__ import annotations

from typing import Any

import pytest

from stagewatch.judgement.sentence import sentence
from stagewatch.ranks.wait_class import WaitClass
from tests.judgement.jobs import LEFT, PARKED, SPINNING, job, verdict

RAISED: dict[str, Any] = {
    "first_failure": "RuntimeError in train",
    "first_failure_time": 20.0,
    "first_failure_age_seconds": 300.0,
}
IDLE: dict[str, Any] = PARKED | {"stage": "idle", "progress_age_seconds": 300.0}


def test_what_is_told_of_a_job_at_work() -> None:
    assert sentence(verdict(job(2))) == "job 540: in progress at step 220"
    assert sentence(verdict(job(2, {"step": None}))) == "job 540: in progress"
    slow = job(2, rank_1=SPINNING)
    assert sentence(verdict(slow)) == (
        "job 540: 1 rank computes, 1 rank spins: 1 of 2 overdue, the others still within their "
        "budget"
    )


@pytest.mark.parametrize("stage", ["train", "idle"])
def test_a_rank_that_sleeps_between_its_steps_makes_progress(stage: str) -> None:
    found = verdict(job(1, PARKED | {"stage": stage, "progress_age_seconds": 0.3}))
    assert found.evidence == ""
    assert sentence(found) == "job 540: in progress at step 220"


def test_ranks_that_idle_since_they_raised_have_stopped() -> None:
    early = {"first_failure_time": 19.0, "first_failure_age_seconds": 301.0}
    found = verdict(job(3, IDLE | RAISED, rank_1=early))
    assert (found.stalled, found.evidence, found.culprits) == (False, "raised", ())
    assert sentence(found) == (
        "job 540: stopped at step 220: 3 of 3 ranks raised an exception, first rank 1 (pid 4001), "
        "RuntimeError in train, 5 min 1 s ago; 3 ranks are parked, and none has completed anything "
        "for 5 min"
    )


def test_a_rank_alone_that_has_stopped_is_told_of_in_the_singular() -> None:
    assert sentence(verdict(job(1, IDLE | RAISED))) == (
        "job 540: stopped at step 220: an exception was raised by rank 0 (pid 4000), RuntimeError "
        "in train, 5 min ago; 1 rank is parked, and it has not completed anything for 5 min"
    )


@pytest.mark.parametrize(
    ("common", "said"),
    [
        ({}, "in progress at step 220"),
        (IDLE | {"progress_age_seconds": 60.0}, "no stage is open, all are idle"),
    ],
    ids=["at work", "done since"],
)
def test_a_job_that_went_on_after_an_exception_has_not_stopped(
    common: dict[str, Any], said: str
) -> None:
    found = verdict(job(3, common, rank_2=RAISED))
    assert found.evidence == ""
    assert said in sentence(found)
    assert sentence(found).endswith(
        "; first failure: rank 2 (pid 4002), RuntimeError in train, 5 min ago"
    )


def test_a_stage_entered_after_an_exception_may_take_its_time() -> None:
    just = RAISED | {"first_failure_age_seconds": 11.0, "progress_age_seconds": 10.9}
    found = verdict(job(2, just))
    assert found.evidence == ""
    assert "first failure: rank 0" in sentence(found)


def test_a_stall_is_told_with_the_first_failure() -> None:
    found = verdict(job(8, SPINNING, rank_5=LEFT | RAISED))
    assert (found.evidence, found.culprits[0].rank) == ("left_loop_early", 5)
    assert sentence(found).endswith(
        "it left the loop early; 7 ranks wait for it, spinning, in all_reduce of world; first "
        "failure: rank 5 (pid 4005), RuntimeError in train, 5 min ago"
    )


def test_a_job_whose_ranks_here_are_all_gone_is_wrong_but_not_stalled() -> None:
    ranks = job(2, {"wait_class": WaitClass.GONE})
    assert sentence(verdict(ranks)) == "job 540: all its 2 ranks here are gone"
    found = verdict(ranks[:1])
    assert sentence(found) == "job 540: its only rank here is gone"
    assert (found.stalled, found.evidence, found.culprits) == (False, "process_gone", ())
