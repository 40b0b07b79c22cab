"""Counters over members that come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagewatch.ranks.counter import RankCounter


def test_what_a_member_had_counted_stays_when_it_ends() -> None:
    counter = RankCounter()
    assert counter.update("rank 0", 100, 50) == 50
    assert counter.update("rank 0", 100, 70) == 70
    assert counter.update("rank 0", 100, 30) == 70, "a member with 40 ended"
    assert counter.update("rank 0", 100, 35) == 75


def test_a_new_process_of_a_rank_starts_afresh() -> None:
    counter = RankCounter()
    counter.update("rank 0", 100, 50)
    assert counter.update("rank 0", 200, 5) == 5


def test_ranks_that_are_gone_are_forgotten() -> None:
    counter = RankCounter()
    counter.update("rank 0", 100, 50)
    counter.update("rank 1", 100, 50)
    counter.forget_unseen()
    counter.update("rank 1", 100, 60)
    counter.forget_unseen()
    assert counter.update("rank 0", 100, 10) == 10
    assert counter.update("rank 1", 100, 70) == 70


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_it_never_falls_and_never_exceeds_what_was_added(sums: list[int]) -> None:
    counter = RankCounter()
    totals = [counter.update("r", 1, value) for value in sums]
    assert totals == sorted(totals)
    assert totals[-1] >= max(sums)
