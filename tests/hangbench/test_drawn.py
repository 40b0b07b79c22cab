"""Random shapes are well formed, of all kinds, and the same for a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hangbench.__main__ import main
from tests.hangbench.drawn import HOWS, TOPOLOGIES, draw, write
from tests.hangbench.shape import Shape, load

SEEDS = range(200)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> list[Shape]:
    files = write(SEEDS[0], len(SEEDS), tmp_path_factory.mktemp("drawn"))
    return [load(file) for file in files]


def test_random_shapes_are_well_formed_and_the_same_for_a_seed(shapes: list[Shape]) -> None:
    assert [draw(seed) for seed in SEEDS] == [shape.file.read_text() for shape in shapes]
    assert 0.25 < [shape.healthy for shape in shapes].count(True) / len(shapes) < 0.42
    assert 0.1 < [shape.backend for shape in shapes].count("torch") / len(shapes) < 0.3
    assert all(2 <= shape.world <= 12 for shape in shapes)


def test_all_kinds_occur(shapes: list[Shape]) -> None:
    text = "".join(shape.file.read_text() for shape in shapes)
    for topology in TOPOLOGIES.values():
        assert f"drawn at random: {topology}, " in text
    more = text + "".join(map(draw, range(len(SEEDS), 3 * len(SEEDS))))
    for how in HOWS:
        assert f"hang ({how})" in more or f"hangs ({how})" in more
    faults = {"init", "collective", "compute", "io", "process", "lock", "livelock", "end", "node"}
    assert faults == {shape.kind for shape in shapes if not shape.healthy}
    oddities = {"pause", "eval", "checkpoint", "compile", "data", "elastic", "suspend", "end"}
    assert oddities | {"service", "variance"} == {shape.kind for shape in shapes if shape.healthy}
    assert {shape.wait for shape in shapes} == {"block", "poll", "spin"}
    assert {shape.report for shape in shapes} == {"with", "call"}
    several = [shape for shape in shapes if len(shape.expect.sets[0]) > 1 and shape.expect.node < 0]
    assert len(several) > 5


def test_shapes_are_drawn_into_a_folder(tmp_path: Path) -> None:
    arguments = ["draw", "--seed", "7", "--count", "2", "--into", str(tmp_path / "drawn")]
    assert main(arguments) == 0
    names = sorted(file.name for file in (tmp_path / "drawn").iterdir())
    assert names == ["drawn_0007.toml", "drawn_0008.toml"]
