"""Shapes of slow ranks are as slow as they say, and are judged rightly."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from stagewatch.prometheus.api import Track
from tests.hangbench.actions import Slowness
from tests.hangbench.player import Look, Played
from tests.hangbench.shape import Shape, ShapeError, load
from tests.hangbench.slow_results import GOAL, markdown, per_day, write
from tests.hangbench.slow_score import (
    ROTATES,
    Heard,
    Spell,
    judge,
    named_twice,
    own_work,
    slowness,
    spells,
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


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"factor": 2.0}, "factor is that of the programme"),
        ({"slow": 'course = "sometimes"'}, "course is one of"),
        ({"slow": "colour = 3"}, "unexpected keyword"),
        ({"head": "watch = 700"}, "watch is at most 600"),
        ({"head": "healthy = true", "expect": ""}, "kind is one of"),
        ({"expect": 'culprits = [1]\nrotates = "often"'}, "levels are"),
    ],
)
def test_a_mistake_in_a_slow_shape_is_told(
    more: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    assert shape(tmp_path).expect.page == "must not"
    with pytest.raises(ShapeError, match=complaint):
        shape(tmp_path, **more)  # type: ignore[arg-type]


def test_slowness_keeps_to_its_period_and_turn() -> None:
    always = Slowness(1.5, since=5, steps=0, period=0, rotate=0)
    assert always.applies(5, turn=False)
    bursts = Slowness(1.5, since=5, steps=2, period=10, rotate=0)
    assert [step for step in range(5, 27) if bursts.applies(step, turn=False)] == [
        *(5, 6, 15, 16, 25, 26)
    ]
    turns = Slowness(1.5, since=5, steps=0, period=0, rotate=1)
    assert turns.applies(7, turn=True)
    assert not turns.applies(7, turn=False)


def test_own_work_is_what_is_left_without_communication(tmp_path: Path) -> None:
    one = played(shape(tmp_path))
    own = own_work(one.looks, one.triggered)
    assert own == pytest.approx({0: 0.2, 1: 0.3, 2: 0.2, 3: 0.2}, rel=0.01)
    assert slowness(one) == pytest.approx(1.5, rel=0.01)
    assert unsound(one) == ""


def test_peers_are_those_of_the_same_place(tmp_path: Path) -> None:
    one = played(shape(tmp_path, slow="peers = [0, 1]"), own=(0.2, 0.3, 0.4, 0.4))
    assert slowness(one) == pytest.approx(1.5, rel=0.01)


def test_a_shape_that_was_not_as_slow_as_it_says_does_not_count(tmp_path: Path) -> None:
    one = played(shape(tmp_path), own=(0.2, 0.21, 0.2, 0.2))
    assert "1.05 times as long, not 1.5 times" in unsound(one)
    assert unsound(played(shape(tmp_path, slow="share = 0.1"), own=(0.2, 0.21, 0.2, 0.2))) == ""


def test_a_shape_in_which_others_were_slow_too_does_not_count(tmp_path: Path) -> None:
    one = played(shape(tmp_path), own=(0.2, 0.3, 0.28, 0.2))
    assert "said to be healthy took 1.40 times" in unsound(one)


def test_a_spell_ends_where_the_alert_pauses() -> None:
    samples = [(float(when), 1.0) for when in (0, 5, 10, 60, 65)]
    made = spells(Track({"alertname": "SlowRank"}, samples), frozenset({1}))
    assert [(one.begin, one.end) for one in made] == [(0, 10), (60, 65)]


@pytest.mark.parametrize(
    ("made", "told", "false"),
    [
        ([], None, 0),
        ([("SlowRank", {1}, 1100, 1600)], 100, 0),
        ([("SlowRank", {1}, 1100, 1600), ("SlowRank", {0}, 1200, 1210)], 100, 1),
        ([("SlowRank", {0}, 1050, 1100), ("SlowRank", {1}, 1080, 1600)], 105, 1),
        ([("SlowRank", {1}, 950, 960)], None, 1),  # before it was slow
        ([("SlowNode", {0, 1}, 1100, 1600)], None, 1),
        ([(ROTATES, set(), 1100, 1600)], None, 0),
        ([("Straggler", {3}, 1100, 1600)], None, 0),  # judged aside
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


class Answers:
    """Prometheus, of which only one answer is asked."""

    def __init__(self) -> None:
        self.labels: list[dict[str, str]] = []

    def query(self, expression: str) -> list[Track]:
        assert 'job_id="small"' in expression
        return [Track(labels, []) for labels in self.labels]


def test_a_shape_is_over_once_the_right_ones_have_been_named_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("tests.hangbench.slow_score.time.time", lambda: now[0])
    prometheus, one = Answers(), played(shape(tmp_path))
    enough = named_twice(prometheus)  # type: ignore[arg-type]

    def after(seconds: float, *ranks: str) -> bool:
        now[0] += seconds
        prometheus.labels = [
            {"alertname": "SlowRank", "role": "train", "rank": rank} for rank in ranks
        ]
        return enough(one)

    assert not after(0)
    assert not after(20, "0")
    assert not after(20, "1", "0")
    assert not after(20, "1")
    assert not after(20)
    assert after(20, "1")


def test_the_tables_tell_rates_with_their_bounds(tmp_path: Path) -> None:
    right = judge(played(shape(tmp_path)), Heard([spell("SlowRank", {1}, 1100, 1600)]))
    late = dataclasses.replace(right, name="late", told_after=300.0)
    calm = dataclasses.replace(
        right, name="calm", healthy=True, kind="noise", must=False, seconds=8640.0, told_after=None
    )
    accused = dataclasses.replace(calm, name="accused", false=["SlowRank [3] 40 s"])
    wrong = dataclasses.replace(right, name="wrong", unsound="it did not go on")
    text = write([right, late, calm, accused, wrong], tmp_path)
    assert "2 slow and 2 healthy shapes" in text
    assert "| all | 1/2 = 50% (1% to 99%) | 2/2 = 100% (16% to 100%) | 300 s |" in text
    assert f"| {GOAL} | none |" in text  # its stage is of 0.2 s
    assert "| all | 1/2 = 50% (1% to 99%) | 1 in 0.200 = 5.00 (0.13 to 27.86) |" in text
    assert "### Not as expected: 1\n" in text
    assert "| wrong | it did not go on |" in text
    assert len(json.loads((tmp_path / "slow.json").read_text())) == 5
    assert "| all | none |" in markdown([])
    assert per_day(0, 10) == "0 in 10.000 = 0.00 (0.00 to 0.37)"


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH")
@pytest.mark.xdist_group("live")
@pytest.mark.timeout(600)
def test_a_short_slow_shape_is_played_and_judged(tmp_path: Path) -> None:
    """The verdict is the rules' matter; here it is only asked for, and the slowness measured."""
    from tests.bench.bench_slow import run

    [outcome] = run([shape(tmp_path)], jobs=1, watch=8)
    assert outcome.seconds >= 8
    assert outcome.expected == [1]
    assert outcome.measured is not None
    assert "### Slow shapes" in write([outcome], tmp_path)
