"""Steps a second, from looks at fixed times."""

from __future__ import annotations

from stagewatch.top.node import StepRates, key
from tests.judgement.jobs import job


def test_steps_are_counted_between_looks_and_a_hung_rank_makes_none() -> None:
    rates = StepRates()
    (rank,) = job(1, {"step": 10})
    assert rates.per_second([rank], 100.0) == {}
    (later,) = job(1, {"step": 14})
    assert rates.per_second([later], 102.0) == {key(rank): 2.0}
    (hung,) = job(1, {"step": 14, "progress_age_seconds": 400.0})
    assert rates.per_second([hung], 500.0) == {key(rank): 0.0}


def test_a_rank_that_begins_again_is_not_counted_backwards() -> None:
    rates = StepRates()
    (before,) = job(1, {"step": 100})
    (after,) = job(1, {"step": 1})
    rates.per_second([before], 0.0)
    assert rates.per_second([after], 1.0) == {}
