"""Courses of jobs: what their agents tell, the shipped sums of it, and who is named as slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stagewatch.judgement.slow_watch import SlowLook, SlowWatch
from stagewatch.ranks.peers import NOBODY
from tests.alerts.promtool import needs_promtool
from tests.judgement.promtool_queries import PromtoolQueries
from tests.judgement.slow_series import TICK, MadeUp, Steps

pytestmark = needs_promtool
Looks = Mapping[int, SlowLook]
Watched = Callable[[MadeUp], Looks]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """What a judge has seen of a job every 15 s from its beginning, by tick."""

    def play(job: MadeUp) -> Looks:
        api = PromtoolQueries(tmp_path, ["slow.rules.yaml"], job.given)

        def questions() -> Looks:
            watch = SlowWatch(api)
            return {tick: watch.look(float(tick * TICK)) for tick in range(1, job.ticks + 1)}

        return api.ask(questions)

    return play


def named(looks: Looks, minutes: float) -> set[int]:
    """The ranks that are slow after some minutes."""
    return {int(rank.rank) for rank in looks[int(minutes * 60 / TICK)].ranks}


def ever(looks: Looks) -> set[int]:
    """The ranks that were slow at some time."""
    return {int(rank.rank) for look in looks.values() for rank in look.ranks}


def rotated(looks: Looks) -> list[int]:
    """When slowness rotated: ticks."""
    return [tick for tick, look in looks.items() if look.rotates]


def alike(seconds: float, ended: int) -> Steps:
    """So much work in a tick, in so many steps of one length."""
    return [(TICK / ended, seconds / ended, ended)]


def fifth(slow: Callable[[int], bool]) -> Callable[[int, int], float]:
    """From minute 5 to 15 some ranks work 1.2 times as long as the others."""
    return lambda rank, tick: 13.5 if not 20 <= tick < 60 else 14.7 if slow(rank) else 12.25


def test_a_rank_that_works_a_fifth_longer_is_named_within_two_minutes(watched: Watched) -> None:
    work = fifth(lambda rank: rank == 3)
    job = MadeUp(4, 72, lambda rank: f"n{rank // 3 + 1}").works(work)
    looks = watched(job.steps(lambda rank, tick: alike(work(rank, tick), 15)))
    assert (named(looks, 6), named(looks, 7), named(looks, 18)) == (set(), {3}, set())
    ((rank, told),) = looks[32].ranks.items()
    assert (rank.cluster, rank.node, rank.job_id, rank.role) == ("c", "n2", "7", "train")
    assert told.ratio == pytest.approx(1.2)
    assert told.cost == pytest.approx(0.2 * 12.25 / 15)
    assert told.seconds_per_step == pytest.approx(0.2 * 12.25 / 15)  # steps of a second
    assert 240 <= told.since <= 300 and {told.since} == {
        one.since for look in looks.values() for one in look.ranks.values()
    }
    assert not any(look.nodes or look.rotates for look in looks.values())


def test_where_steps_have_no_numbers_three_minutes_tell(watched: Watched) -> None:
    looks = watched(MadeUp(4, 34).works(fifth(lambda rank: rank == 3)))
    assert (named(looks, 7), named(looks, 8.5)) == (set(), {3})


def test_of_steps_of_which_a_window_holds_one_nothing_is_told(watched: Watched) -> None:
    """One rollout is longer than another by chance."""
    job = MadeUp(4, 56).works(fifth(lambda rank: rank == 3))
    looks = watched(job.gauge("rl_newest_step", lambda rank, tick: tick // 8))
    assert ever(looks) == set()


def test_a_little_for_long_is_slow_as_well(watched: Watched) -> None:
    """By a twelfth more than peers that differ it stands out in no window."""
    looks = watched(MadeUp(4, 44).works(lambda rank, tick: [12.0, 12.4, 12.0, 13.2][rank]))
    assert (named(looks, 4.5), named(looks, 11)) == (set(), {3})


def test_a_node_all_of_whose_ranks_are_slow_is_named(watched: Watched) -> None:
    work = fifth(lambda rank: rank >= 4)
    job = MadeUp(6, 36, lambda rank: f"n{rank // 2}").works(work)
    looks = watched(job.steps(lambda rank, tick: alike(work(rank, tick), 15)))
    assert not looks[24].nodes
    ((node, ratio),) = looks[32].nodes.items()
    assert (node.node, ratio) == ("n2", pytest.approx(1.2))


def pausing(rank: int, tick: int) -> float:
    """Rank 1 works for 45 s in one step, and the others wait for it."""
    return 13.5 if not 20 <= tick < 23 else 15 if rank == 1 else 0


def test_a_single_pause_of_one_rank_is_not_slowness(watched: Watched) -> None:
    def ended(rank: int, tick: int) -> Steps:
        one = [(46.0, 45.9 if rank == 1 else 0.9, 1)] if tick == 23 else []
        return one + ([] if 20 <= tick < 23 else alike(13.5, 15))

    assert ever(watched(MadeUp(4, 40).works(pausing).steps(ended))) == set()


def test_pauses_of_all_ranks_excuse_no_slow_one(watched: Watched) -> None:
    """Every fifth tick two of 15 s begin in which all ranks wait for rollouts."""

    def ended(rank: int, tick: int) -> Steps:
        work = 1.35 if rank == 3 else 0.9
        ordinary = [(1.5, work, 10)]
        return {3: [], 4: [(30.0, 29.9, 1)]}.get(tick % 5, ordinary)

    def work(rank: int, tick: int) -> float:
        return 15.0 if tick % 5 > 2 else 13.5 if rank == 3 else 9.0

    looks = watched(MadeUp(4, 24).works(work).steps(ended))
    assert named(looks, 5) == ever(looks) == {3}


def test_ranks_that_have_died_are_no_peers(watched: Watched) -> None:
    gone = lambda rank, tick: math.nan if rank < 4 or tick <= 20 else 1.0  # noqa: E731
    job = MadeUp(8, 40).gauge("rl_rank_gone", gone)
    looks = watched(job.works(lambda rank, tick: 13.5 if rank < 4 or tick < 20 else 0.0))
    assert ever(looks) == set()


PARTS = [4.2, 3.0, 3.0, 4.5]
"""The first part of a pipeline does the embedding besides, the last one the loss."""


def test_parts_of_a_pipeline_are_no_peers(watched: Watched) -> None:
    job = MadeUp(4, 48).works(lambda rank, tick: PARTS[rank], lambda rank: NOBODY)
    assert ever(watched(job)) == set()


def test_in_a_pipeline_a_rank_is_compared_with_its_data_parallel_group(watched: Watched) -> None:
    """Three copies of a pipeline of two parts, of which the last one is longer by design."""
    job = MadeUp(6, 32)
    job.works(
        lambda rank, tick: 4.5 if rank % 2 or rank == 2 else 3.0, lambda rank: f"dp:{rank % 2}"
    )
    assert named(watched(job), 8) == {2}


def turning(cost: float) -> Callable[[int, int], float]:
    """From minute 5 on another of 8 ranks works longer each half minute."""
    return lambda rank, tick: 7 + (cost if tick >= 20 and tick // 2 % 8 == rank else 0)


def test_slowness_that_rotates_by_the_half_minute_is_told_and_names_nobody(
    watched: Watched,
) -> None:
    looks = watched(MadeUp(8, 60).works(turning(4.0)))
    assert rotated(looks) and rotated(looks)[0] > 32
    assert set(looks[rotated(looks)[-1]].rotates.values()) == {8}
    assert ever(looks) == set()


def by_step(own: list[tuple[float, float, int]], ranks: int = 8) -> MadeUp:
    """Ranks whose steps differ within each tick."""
    work = sum(work * count for _, work, count in own)
    return MadeUp(ranks, 48).works(lambda rank, tick: work).steps(lambda rank, tick: own)


def test_another_rank_that_is_slow_each_step_is_told(watched: Watched) -> None:
    """8 ranks take turns: one works 0.75 s in each step of 0.8 s, the others 0.5 s."""
    looks = watched(by_step([(0.8, 0.75, 2), (0.8, 0.5, 14)]))
    first = rotated(looks)[0]
    assert 20 < first <= 28
    assert set(looks[first].rotates.values()) == {8}
    (turn,) = looks[first].turns.values()
    assert turn.cost == pytest.approx(0.25 / 0.8, rel=1e-3)
    assert ever(looks) == set()


def test_nor_of_rare_long_steps_of_all_ranks(watched: Watched) -> None:
    """Every fiftieth takes 30 s, as when an epoch begins."""

    def ended(rank: int, tick: int) -> Steps:
        return {3: [], 4: [(30.0, 29.9, 1)]}.get(tick % 5, alike(13.5, 15))

    looks = watched(MadeUp(4, 80).works(lambda r, t: 15 if t % 5 > 2 else 13.5).steps(ended))
    assert rotated(looks) == []


def test_a_judge_that_starts_anew_says_the_same(tmp_path: Path) -> None:
    work = fifth(lambda rank: rank == 3)
    job = MadeUp(4, 62, lambda rank: f"n{rank // 3 + 1}").works(work)
    job.steps(lambda rank, tick: alike(work(rank, tick), 15))
    api = PromtoolQueries(tmp_path, ["slow.rules.yaml"], job.given)
    times = [tick * TICK for tick in range(40, 63)]

    def questions() -> tuple[list[SlowLook], list[SlowLook]]:
        steady = SlowWatch(api)
        for tick in range(1, 40):
            steady.look(float(tick * TICK))
        return [steady.look(float(at)) for at in times], [
            SlowWatch(api).look(float(at)) for at in times[::4]
        ]

    steady, anew = api.ask(questions)
    assert anew == steady[::4]
    assert any(look.ranks for look in anew)
