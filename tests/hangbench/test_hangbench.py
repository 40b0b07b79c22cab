"""Shapes of jobs are well formed and cited, are played as they say, and are judged rightly."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from stagewatch.gpu.device_state import Device
from tests.hangbench.recorded import cases, replay
from tests.hangbench.score import RIGHT, SILENT, Outcome
from tests.hangbench.shape import SHAPES, SLOW_SET, Shape, load

SMALL = """
title = "A small shape"
source = "https://example.org/"
taken = "For a test."
kind = "{kind}"
world = 3
step = [
    {{ do = "sleep", seconds = 0.3, stage = "train" }},
    {fault}
    {{ do = "collective", stage = "train" }},
]
"""
KILLED = '{ do = "signal", name = "KILL", ranks = [1], at = 12, trigger = true },'
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
LATE = '{ do = "sleep", seconds = 3, ranks = [0], at = 12, stage = "train", trigger = true },'


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(text)
    return file


@cache
def every_shape() -> list[Shape]:
    return [load(file) for file in SHAPES.glob("*.toml")]


def test_every_shape_is_well_formed_and_cites_a_public_incident() -> None:
    for shape in every_shape():
        assert re.fullmatch(r"https://[\w.-]+\.[a-z]+/\S+", shape.source), shape.name
        assert shape.title and len(shape.taken.split()) > 5, shape.name


def test_no_shape_of_a_blind_set_tells_an_incident_that_another_tells() -> None:
    told = Counter(shape.source for shape in every_shape())
    blind = [one for one in every_shape() if one.set_name not in ("open", "held", SLOW_SET)]
    assert [shape.name for shape in blind if told[shape.source] > 1] == []


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Outcome]]:
    """Of three jobs that are played side by side, with the folder of their cases."""
    if shutil.which("prometheus") is None:
        pytest.skip("needs prometheus on the PATH")
    from tests.bench.bench_accuracy import run

    folder = tmp_path_factory.mktemp("played")
    hang = SMALL.format(kind="process", fault=KILLED).replace("world", "watch = 40\nworld")
    calm = SMALL.format(kind="variance", fault=LATE).replace("world", "watch = 20\nworld")
    shapes = [
        load(written(folder, "hang", f"{hang}[expect]\nculprits = [1]\npage = 'may'\n")),
        load(written(folder, "calm", f"healthy = true\n{calm}")),
        load(written(folder, "evaluates", EVALUATES)),
    ]
    return folder, {one.name: one for one in run(shapes, jobs=3, into=folder)}


@pytest.mark.xdist_group("hangbench")
@pytest.mark.timeout(600)
def test_a_hang_is_named_and_a_healthy_job_is_left_alone(
    outcomes: tuple[Path, dict[str, Outcome]], tmp_path: Path
) -> None:
    from tests.hangbench.results import write

    folder, answers = outcomes
    assert [one.unsound for one in answers.values()] == ["", "", ""]
    assert answers["hang"].answer == RIGHT
    assert answers["hang"].inspect == RIGHT, answers["hang"].inspect_problem
    assert answers["calm"].answer == SILENT
    assert "| hang | process | 1 | right |" in write(list(answers.values()), tmp_path)
    replayed = {one.name: one.answer for one in replay(cases(folder))}
    assert (replayed["hang"], replayed["calm"]) == (RIGHT, SILENT)
    assert [one["name"] for one in json.loads((tmp_path / "hangbench.json").read_text())]


@pytest.mark.xdist_group("hangbench")
@pytest.mark.timeout(600)
def test_agents_read_of_the_gpus_of_ranks_what_these_say_that_their_gpus_do(
    outcomes: tuple[Path, dict[str, Outcome]],
) -> None:
    """While rank 0 evaluates, once the means of 10 s have settled."""
    case = next(case for case in cases(outcomes[0]) if case.job_id == "evaluates")
    assert case.truth is not None
    told = [
        {rank.rank: rank.device for rank in moment.ranks}
        for moment in case.moments
        if case.truth.trigger < moment.time < case.truth.trigger + 27
    ]
    since = told.index({0: Device.WORKS, 1: Device.SPINS, 2: Device.IDLE})
    assert told[since:] == [told[since]] * len(told[since:])
