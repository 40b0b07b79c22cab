"""Agents read of the GPUs of ranks what these say that their GPUs do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hangbench.field import Field
from tests.hangbench.player import Played, play
from tests.hangbench.shape import load

EVALUATES = """
title = "Rank 0 evaluates for 30 s, and the others wait for it in a barrier"
source = "https://example.org/"
taken = "For a test."
kind = "eval"
healthy = true
world = 3
steps = 16
watch = 45
step = [
    { do = "sleep", seconds = 0.7, stage = "train" },
    { do = "collective", stage = "train" },
    { do = "sleep", seconds = 30, ranks = [0], at = 12, trigger = true },
    { do = "io", seconds = 30, mode = "read", ranks = [2], at = 12, trigger = true },
    { do = "collective", op = "barrier", at = 12 },
]
"""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH")
@pytest.mark.xdist_group("hangbench")
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
        tracks = field.api.query_range("rl_rank_device_state", began, began + 27, 1.0)
    told: dict[float, set[tuple[str, str]]] = {}
    for track in tracks:
        for when, _ in track.samples:
            told.setdefault(when, set()).add((track.labels["rank"], track.labels["state"]))
    states = [told[when] for when in sorted(told)]
    since = states.index({("0", "works"), ("1", "spins"), ("2", "idle")})  # means of 10 s
    assert states[since:] == [states[since]] * len(states[since:])
