"""Agents read of the GPUs of ranks what these say that their GPUs do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hangbench.device import COMPUTES, DEVICES, IDLE, SPINS, usual
from tests.hangbench.field import Field
from tests.hangbench.player import Played, play
from tests.hangbench.shape import ShapeError, load

EVALUATES = """
title = "Rank 0 evaluates for 100 s, and the others wait for it in a barrier"
source = "https://example.org/"
taken = "For a test."
kind = "eval"
healthy = true
world = 3
steps = 16
watch = 125
step = [
    { do = "sleep", seconds = 0.7, stage = "train" },
    { do = "collective", stage = "train" },
    { do = "sleep", seconds = 100, ranks = [0], at = 12, trigger = true },
    { do = "io", seconds = 100, mode = "read", ranks = [2], at = 12, trigger = true },
    { do = "collective", op = "barrier", at = 12 },
]
"""


@pytest.mark.parametrize(
    ("do", "stage", "step", "does"),
    [
        ("sleep", "train", 3, COMPUTES),
        ("sleep", "", 3, COMPUTES),
        ("sleep", "reward", 3, IDLE),
        ("sleep", "", 0, IDLE),
        ("collective", "train", 3, SPINS),
        ("get", "rollout", 3, IDLE),
        ("hang", "train", 3, IDLE),
    ],
)
def test_an_action_has_its_usual_device(do: str, stage: str, step: int, does: str) -> None:
    assert usual(do, stage, step) == does


def test_a_device_is_one_of_three(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(EVALUATES.replace("trigger = true", 'trigger = true, device = "burns"'))
    with pytest.raises(ShapeError, match=f"device is one of {', '.join(DEVICES)}"):
        load(file)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH")
@pytest.mark.xdist_group("live")
@pytest.mark.timeout(600)
def test_an_evaluation_computes_while_the_others_spin_or_read(tmp_path: Path) -> None:
    file = tmp_path / "evaluates.toml"
    file.write_text(EVALUATES)
    plays: list[Played] = []
    with Field(watched=True) as field:
        play([load(file)], field, 1, 4.0, lambda _: None, plays.append)
        assert plays[0].sound() == "", plays[0].log
        assert field.api is not None
        began = plays[0].triggered
        tracks = field.api.query_range("rl_rank_device_state", began + 20, began + 80, 5.0)
    told: dict[str, set[str]] = {track.labels["rank"]: set() for track in tracks}
    for track in tracks:
        told[track.labels["rank"]].add(track.labels["state"])
    assert told == {"0": {"works"}, "1": {"spins"}, "2": {"idle"}}
