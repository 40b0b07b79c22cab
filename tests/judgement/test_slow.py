"""Who is slow, on either side of each threshold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stagewatch.judgement.slow import (
    LEAST_PEERS,
    Moments,
    Node,
    Past,
    Rank,
    Role,
    Standing,
    Steps,
    Suspect,
    Turn,
    in_steps,
    lasting,
    lately,
    rotates,
    slow_nodes,
    step_turn,
)
from tests.alerts.promtool import ALERTS

NOW = 10_000.0
ROLE = Role("c", "7", "train")


def rank(number: int, node: str = "n1") -> Rank:
    return Rank("c", node, "7", "train", str(number))


def before(windows: int) -> list[float]:
    """The latest looks, 15 s apart."""
    return [NOW - 15 * back for back in range(windows)]


STEADY = Steps(count=100, mean=1.2, variance=0.01, peers_mean=1.0, peers_variance=0.01)


@pytest.mark.parametrize(
    ("stood_out", "role_steps", "steps", "slow"),
    [
        (before(6), 100.0, STEADY, True),
        (before(5), 100.0, STEADY, False),
        (before(6), 2.0, STEADY, True),
        (before(6), 1.0, STEADY, False),  # of longer steps a window shows one
        (before(10), None, None, True),  # steps without numbers
        (before(9), None, None, False),  # a pause of a minute
        (before(8), 100.0, replace(STEADY, mean=1.0), False),
    ],
)
def test_a_rank_is_slow_that_stands_out_in_most_windows_and_in_its_steps(
    stood_out: list[float], role_steps: float | None, steps: Steps | None, slow: bool
) -> None:
    suspect = Suspect(stood_out=stood_out, excess=0.2, role_steps=role_steps, steps=steps)
    assert lately(suspect, NOW) == (0.2 if slow else None)


def spread(works: list[float], peers: float = 0.0) -> Steps:
    """Steps of which each takes so much longer than those of the peers."""
    mean = sum(works) / len(works)
    variance = sum((work - mean) ** 2 for work in works) / len(works)
    return Steps(len(works), 1 + mean, variance + peers, 1.0, peers)


@pytest.mark.parametrize(
    ("steps", "slow"),
    [
        (spread([0.2] * 2), False),  # too few
        (spread([0.2] * 3), True),
        (spread([45.0] + [0.0] * 149), False),  # one pause, however long
        (spread([9.0] * 3 + [0.0] * 147), False),
        (spread([9.0] * 4 + [0.0] * 146), True),
        (spread([0.1] * 100, peers=900.0), True),  # pauses of all ranks excuse nobody
    ],
)
def test_single_steps_tell_slowness_from_a_pause(steps: Steps, slow: bool) -> None:
    assert in_steps(steps) == slow


LITTLE = Suspect(excess_lasting=0.075, deviation=0.03, windows=40)


@pytest.mark.parametrize(
    ("suspect", "slow"),
    [
        (LITTLE, True),
        (replace(LITTLE, excess_lasting=0.07), False),
        (replace(LITTLE, deviation=0.038), False),
        (replace(LITTLE, windows=19), False),
        (replace(LITTLE, role_steps_lasting=1.4), False),
    ],
)
def test_a_little_more_work_for_long_is_slow(suspect: Suspect, slow: bool) -> None:
    assert lasting(suspect) == (suspect.excess_lasting if slow else None)


@pytest.mark.parametrize(("ranks", "size", "slow"), [(2, 2, True), (1, 1, False), (2, 3, False)])
def test_a_node_is_slow_where_all_its_ranks_are(ranks: int, size: int, slow: bool) -> None:
    ratios = {rank(number): 1.1 + 0.2 * number for number in range(ranks)}
    node = Node("c", "n1", "7", "train")
    assert slow_nodes(ratios, {node: size}) == ({node: pytest.approx(1.2)} if slow else {})


def standings(windows: int, ranks: int, cost: float) -> list[Standing]:
    """Ranks that stand out by turns."""
    return [
        Standing(NOW - 15 * back, frozenset({rank(back % ranks)}), cost) for back in range(windows)
    ]


@pytest.mark.parametrize(
    ("some", "role_steps", "told"),
    [
        (standings(20, 8, 0.2), None, 8),
        (standings(15, 8, 0.2), None, None),
        (standings(20, 2, 0.2), None, 2),
        (standings(20, 8, 0.1), None, None),
        (standings(20, 8, 0.2), 3.0, None),
    ],
)
def test_slowness_rotates_where_somebody_else_stands_out_in_most_windows(
    some: list[Standing], role_steps: float | None, told: int | None
) -> None:
    assert rotates(some, NOW, role_steps) == told


def turns(cost: float, ranks: int = 8, noise: float = 0.0, varies: float = 0.0) -> Moments:
    """Ranks that take turns in steps of a second."""
    share = 1 / ranks
    return Moments(
        ranks,
        third=cost**3 * (1 - share) * (1 - 2 * share),
        variance=cost**2 * (1 - share) + noise,
        time=ranks,
        time_variance=varies * ranks,
    )


@pytest.mark.parametrize(
    ("moments", "told"),
    [
        (turns(0.099), False),
        (turns(0.101), True),
        (turns(0.3, noise=0.07), True),
        (turns(0.3, noise=0.09), False),
        (turns(0.3, noise=-0.03), False),  # they explain more than there is
        (turns(0.3, varies=0.008), True),
        (turns(0.3, varies=0.0082), False),  # in nine of ten steps somebody has a turn
        (turns(0.3, ranks=2), False),
        (replace(turns(0.3), third=-0.1), False),
    ],
)
def test_turns_of_each_step_are_told_by_the_moments_of_steps(moments: Moments, told: bool) -> None:
    turn = step_turn(moments)
    assert (turn is not None) == told
    if turn:
        assert turn.cost == pytest.approx((moments.third / (7 / 8) / (6 / 8)) ** (1 / 3))
        assert turn.ranks == 8


def test_a_rank_is_slow_since_two_minutes_before_it_is_seen_and_over_short_breaks() -> None:
    past = Past()
    for at in (NOW, NOW + 15, NOW + 15 + 299):
        past.slow([rank(3)], at)
        assert past.since[rank(3)][0] == NOW - 120
    past.slow([], NOW + 15 + 299 + 300)
    assert past.slow_roles() == set()
    past.slow([rank(3)], NOW + 900)
    assert past.since[rank(3)][0] == NOW + 780


def test_who_stood_out_is_forgotten_after_five_minutes() -> None:
    past = Past()
    for tick in range(40):
        past.stand_out({rank(1): 0.1, rank(2): 0.3} if tick < 10 else {}, NOW + 15 * tick)
        past.last = NOW + 15 * tick
        if tick == 9:
            assert past.suspects(NOW + 15 * tick) == {rank(1), rank(2)}
            assert past.standings[ROLE][-1].cost == 0.3
    assert (past.stood_out, past.standings) == ({}, {})


def test_a_look_that_failed_counts_once() -> None:
    past = Past()
    for at in (NOW, NOW + 4):  # the first was not completed
        past.stand_out({rank(1): 0.1}, at)
    assert past.stood_out == {rank(1): [NOW + 4]}


def test_turns_must_be_seen_at_all_looks_of_two_minutes() -> None:
    past, turn = Past(), {ROLE: Turn(0.3, 8)}
    lasted = []
    for look in range(6):
        past.take_turns(turn if look < 5 else {}, NOW + 30 * look)
        past.last = NOW + 30 * look
        lasted.append(past.lasting_turns() == turn)
    assert lasted == [False, False, False, True, True, False]


def test_the_rules_ask_for_as_many_peers() -> None:
    text = (ALERTS / "slow.rules.yaml").read_text()
    peers = r"and job_role_peers:rl_own_work:ranks >= (\d)"
    assert re.findall(peers, text) == [str(LEAST_PEERS)]
