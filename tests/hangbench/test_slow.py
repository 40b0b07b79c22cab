"""Shapes of slow ranks are as slow as they say, and are judged rightly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hangbench.player import Look, Played
from tests.hangbench.shape import Shape, load
from tests.hangbench.slow_results import write
from tests.hangbench.slow_score import (
    ROTATES,
    Heard,
    Spell,
    judge,
    own_work,
    slowness,
    unsound,
)

SMALL = """
title = "One of four ranks works half as long again"
source = "https://example.org/"
taken = "For a test."
kind = "work"
world = 4
nodes = 2
jitter = 0.02
{head}
step = [
    {{ do = "slow", factor = {factor}, ranks = [1], at = 1, trigger = true }},
    {{ do = "sleep", seconds = 0.2, stage = "train" }},
    {{ do = "collective", stage = "train" }},
]
[slow]
factor = 1.5
stage = 0.2
{slow}
[expect]
{expect}
"""


def shape(
    folder: Path,
    *,
    head: str = "",
    slow: str = "",
    expect: str = "culprits = [1]",
    factor: float = 1.5,
) -> Shape:
    file = folder / "small.toml"
    file.write_text(SMALL.format(head=head, slow=slow, expect=expect, factor=factor))
    return load(file)


def played(shape: Shape, own: tuple[float, ...] = (0.2, 0.3, 0.2, 0.2)) -> Played:
    """Ten minutes in which ranks work so long in each step of 0.4 s; triggered at second 1000."""
    placed = {rank: f"node-{shape.node_of(rank)}" for rank in range(shape.world)}
    one = Played(shape, ["node-0", "node-1"], placed, 940.0, 1000.0, 1600.0)
    for second in range(660):
        steps = int(second / 0.4)
        one.looks.append(
            Look(
                940.0 + second,
                tuple((0.0, 0.0, steps) for _ in own),
                tuple(second - steps * seconds for seconds in own),
            )
        )
    return one


def spell(alert: str, ranks: set[int], begin: float, end: float) -> Spell:
    return Spell(alert, frozenset(ranks), begin, end)


def test_own_work_is_what_is_left_without_communication(tmp_path: Path) -> None:
    one = played(shape(tmp_path))
    own = own_work(one.looks, one.triggered)
    assert own == pytest.approx({0: 0.2, 1: 0.3, 2: 0.2, 3: 0.2}, rel=0.01)
    assert slowness(one) == pytest.approx(1.5, rel=0.01)
    assert unsound(one) == ""


@pytest.mark.parametrize(
    ("made", "told", "false"),
    [
        ([], None, 0),
        ([("SlowRank", {1}, 1100, 1600)], 100, 0),
        ([("SlowRank", {0}, 1050, 1100), ("SlowRank", {1}, 1080, 1600)], 105, 1),
        ([("SlowRank", {1}, 950, 960)], None, 1),  # before it was slow
    ],
)
def test_one_slow_rank_is_judged(
    made: list[tuple[str, set[int], float, float]], told: float | None, false: int, tmp_path: Path
) -> None:
    outcome = judge(played(shape(tmp_path)), Heard([spell(*one) for one in made]))
    assert outcome.told_after == told
    assert len(outcome.false) == false
    assert outcome.must


def test_a_slow_node_may_be_named_as_node_or_by_all_its_ranks(tmp_path: Path) -> None:
    one = played(shape(tmp_path, expect='culprits = "node"\nnode = 0'), own=(0.3, 0.3, 0.2, 0.2))
    assert judge(one, Heard([spell("SlowNode", {0, 1}, 1020, 1600)])).told_after == 20
    by_ranks = [spell("SlowRank", {0}, 1020, 1600), spell("SlowRank", {1}, 1040, 1600)]
    outcome = judge(one, Heard(by_ranks))
    assert outcome.told_after == 40
    assert outcome.false == []


def test_rotating_slowness_names_nobody(tmp_path: Path) -> None:
    one = played(shape(tmp_path, expect='culprits = "nobody"\nrotates = "must"'))
    told = judge(one, Heard([spell(ROTATES, set(), 1090, 1600)]))
    assert (told.told_after, told.false, told.must, told.rotates) == (90, [], True, True)
    named = judge(one, Heard([spell("SlowRank", {1}, 1090, 1100)]))
    assert (named.told_after, len(named.false)) == (None, 1)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH")
@pytest.mark.xdist_group("hangbench")
@pytest.mark.timeout(600)
def test_a_short_slow_shape_is_played_and_judged(tmp_path: Path) -> None:
    """The verdict is the rules' matter; here it is only asked for, and the slowness measured."""
    from tests.bench.bench_slow import run

    [outcome] = run([shape(tmp_path)], jobs=1, watch=8)
    assert outcome.seconds >= 8
    assert outcome.expected == [1]
    assert outcome.measured is not None
    assert "### Slow shapes" in write([outcome], tmp_path)
