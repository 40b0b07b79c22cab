"""Random shapes are well formed, and the same for a seed."""

from __future__ import annotations

from pathlib import Path

from tests.hangbench.drawn import draw, write
from tests.hangbench.shape import load

SEEDS = range(200)


def test_random_shapes_are_well_formed_and_the_same_for_a_seed(tmp_path: Path) -> None:
    shapes = [load(file) for file in write(SEEDS[0], len(SEEDS), tmp_path)]
    assert [draw(seed) for seed in SEEDS] == [shape.file.read_text() for shape in shapes]
    assert 0.25 < [shape.healthy for shape in shapes].count(True) / len(shapes) < 0.42
    assert 0.1 < [shape.backend for shape in shapes].count("torch") / len(shapes) < 0.3
    assert all(2 <= shape.world <= 12 for shape in shapes)
