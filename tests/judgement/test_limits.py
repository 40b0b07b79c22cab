"""How long a stage may go without a mark of progress."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

from stagewatch.judgement.limits import (
    DEFAULT,
    MIN_SECONDS,
    STILL_SECONDS,
    UNTAUGHT_SECONDS,
    Limits,
    Shown,
    budget_seconds,
    quantile,
)
from stagewatch.record import BUCKETS


def taught(stage: str, *gaps: int, recent: float = 0.0) -> dict[str, Shown]:
    """A stage that has shown so many gaps, by bucket."""
    counts = tuple(gaps) + (0,) * (BUCKETS - len(gaps))
    return {stage: Shown(sum(gaps), quantile(counts, 0.99), recent, recent)}


def test_a_stage_is_taught_after_three_gaps() -> None:
    assert budget_seconds(taught("train", 2), "train", still=False) == UNTAUGHT_SECONDS
    assert budget_seconds(taught("train", 3), "train", still=False) == MIN_SECONDS
    of_two = partial(budget_seconds, stage="train", ranks=2, still=False)
    assert of_two(taught("train", 5)) == UNTAUGHT_SECONDS
    assert of_two(taught("train", 6)) == MIN_SECONDS


def test_a_budget_is_three_times_what_the_stage_has_shown() -> None:
    budget = budget_seconds(taught("train", *[0] * 11, 100), "train", still=False)
    assert budget == pytest.approx(3 * (16 + 16 * 0.99))


def test_one_long_gap_is_heard_before_the_percentile_moves() -> None:
    """By one and a half times, as docs/tuning.md says."""
    longer = taught("train", 1000, recent=40.0)
    assert budget_seconds(longer, "train", still=False) == 60.0
    assert budget_seconds(taught("train", 1, recent=40.0), "train", still=False) == 60.0


def test_the_first_gap_is_heard_until_the_stage_is_taught() -> None:
    first = Shown(longest_seconds=100.0)
    assert budget_seconds({"train": first}, "train", still=False) == 150.0
    later = dataclasses.replace(first, gaps=9)
    assert budget_seconds({"train": later}, "train", still=False) == MIN_SECONDS


def test_gaps_beyond_the_last_bound_count_as_that() -> None:
    budget = budget_seconds(taught("train", *[0] * 19, 10), "train", still=False)
    assert budget == 3 * 4096


def test_what_a_job_has_shown_of_its_evaluations_counts_more_than_how_long_they_may_be() -> None:
    assert budget_seconds({}, "eval", still=False) == DEFAULT.eval_seconds
    assert budget_seconds(taught("eval", 3, recent=100.0), "eval", still=False) == 150.0
    assert budget_seconds(taught("eval", 3, recent=5.0), "eval", still=False) == STILL_SECONDS


def test_a_site_has_limits_of_its_own() -> None:
    limits = Limits(
        taught_seconds=20.0, untaught_seconds=90.0, still_seconds=120.0, eval_seconds=600.0
    )
    known = partial(budget_seconds, limits=limits)
    assert known(taught("train", 100), "train", still=False) == 20.0
    assert known({}, "train", still=False) == 90.0
    assert known({}, "eval", still=True) == 120.0
    assert known({}, "eval", still=False) == 600.0
