"""Shapes of slow ranks are as slow as they say, and are judged rightly."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hangbench.shape import load
from tests.hangbench.slow_results import write

SMALL = """
title = "One of four ranks works half as long again"
source = "https://example.org/"
taken = "For a test."
kind = "work"
world = 4
nodes = 2
jitter = 0.02
step = [
    { do = "slow", factor = 1.5, ranks = [1], at = 1, trigger = true },
    { do = "sleep", seconds = 0.2, stage = "train" },
    { do = "collective", stage = "train" },
]
[slow]
factor = 1.5
stage = 0.2
[expect]
culprits = [1]
"""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH")
@pytest.mark.xdist_group("hangbench")
@pytest.mark.timeout(600)
def test_a_short_slow_shape_is_played_and_judged(tmp_path: Path) -> None:
    """The verdict is the rules' matter; here it is only asked for, and the slowness measured."""
    from tests.bench.bench_slow import run

    (file := tmp_path / "small.toml").write_text(SMALL)
    [outcome] = run([load(file)], jobs=1, watch=8)
    assert outcome.seconds >= 8
    assert outcome.expected == [1]
    assert outcome.measured is not None and outcome.must
    assert "### Slow shapes" in write([outcome], tmp_path)
