"""Where the step of a simulated pipeline goes, with one known cause of loss at a time."""

from __future__ import annotations

import random

import pytest

from stagewatch.whatif.losses import Account, Cause, account
from stagewatch.whatif.replay import Replay
from tests.bench.pipeline_tables import operations_of
from tests.whatif.pipeline import Cost, table


def accounted(cost: Cost, *, stages: int = 1) -> Account:
    return account(Replay(operations_of(table(cost, stages=stages))))


def lost(made: Account) -> dict[Cause, float]:
    return {loss.cause: round(loss.share, 3) for loss in made.losses}


@pytest.mark.parametrize("stages", [1, 4])
def test_even_work_loses_nothing_and_names_nobody(stages: int) -> None:
    made = accounted(lambda *_: 0.1, stages=stages)
    assert made.slow == ()
    assert sum(lost(made).values()) == pytest.approx(0, abs=0.01)
    assert made.slowdown == pytest.approx(1, abs=0.01)


def test_a_slow_rank_is_named_with_what_it_costs() -> None:
    made = accounted(lambda _, replica, *__: 0.2 if replica == 2 else 0.1)
    assert [(rank, round(times, 1)) for rank, times in made.slow] == [(2, 2.0)]
    assert lost(made)[Cause.SLOW_RANK] == pytest.approx(0.5, abs=0.01)
    assert next(one.worth for one in made.losses if one.cause is Cause.SLOW_RANK) == pytest.approx(
        0.5, abs=0.01
    )


def test_uneven_sequences_cost_and_name_nobody() -> None:
    draw = random.Random(7)
    made = accounted(lambda *_: draw.uniform(0.02, 0.5))
    assert made.slow == ()
    assert max(lost(made), key=lost(made).__getitem__) is Cause.UNEVEN_DATA
    assert lost(made)[Cause.UNEVEN_DATA] > 0.1


def test_a_heavy_last_stage_is_uneven_partition_and_names_nobody() -> None:
    made = accounted(lambda _, __, stage, ___: 0.16 if stage == 3 else 0.08, stages=4)
    assert made.slow == ()
    assert max(lost(made), key=lost(made).__getitem__) is Cause.PARTITION
    assert lost(made)[Cause.PARTITION] > 0.2


def test_shares_and_the_ideal_make_the_whole() -> None:
    draw = random.Random(3)
    made = accounted(
        lambda _, replica, stage, __: draw.uniform(0.1, 0.2) * (1 + stage) * (1 + (replica == 1)),
        stages=2,
    )
    shares = sum(loss.share for loss in made.losses)
    assert shares + made.ideal / made.measured == pytest.approx(1)
