"""Small real programs are well formed and cited, and do as they say when they are played."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from stagewatch.prometheus.api import Track
from tests.hangbench.field import Field
from tests.hangbench.player import Played, lacks, play
from tests.hangbench.probes import Probe
from tests.hangbench.score import RIGHT, STRANGER, Seen, judge, named_by
from tests.hangbench.shape import (
    PROGRAMS,
    Shape,
    bare,
    find_programs,
    load,
    server_number,
)


def test_there_are_programs_with_faults_and_each_has_a_healthy_twin() -> None:
    programs = find_programs()
    faults = [shape for shape in programs if not shape.healthy]
    assert len(faults) >= 10
    assert sorted(shape.program for shape in faults) == sorted(
        shape.program for shape in programs if shape.healthy
    )
    for shape in programs:
        assert re.fullmatch(r"https://[\w.-]+\.[a-z]+/\S+", shape.source)
        assert shape.title and len(shape.taken.split()) > 5
    assert len({shape.source for shape in faults}) == len(faults)


def test_every_program_is_played_by_some_case() -> None:
    scripts = {file.name for file in PROGRAMS.glob("*.py")} - {"__init__.py", "part.py"}
    assert scripts == {shape.program for shape in find_programs()}


TALK = """
title = "Ranks and servers"
source = "https://example.org/"
taken = "For a test."
kind = "pipeline"
world = 2
step = [
    { do = "fail", server = "reward", how = "silent", ranks = [0], at = 4, trigger = true },
    { do = "call", server = "engine" },
]
[[server]]
name = "engine"
calls = "reward"
[[server]]
name = "reward"
[expect]
culprits = ["reward"]
"""


@pytest.fixture
def talk(tmp_path: Path) -> Shape:
    file = tmp_path / "talk.toml"
    file.write_text(TALK)
    return load(file)


def test_a_server_is_named_by_its_pid_and_a_process_that_is_none_is_a_stranger(talk: Shape) -> None:
    played = Played(talk, ["node-a"], {}, 90.0, triggered=100.0, ended=200.0, server_pids=[11, 12])
    labels = {"evidence": "outsider", "role": "train"}
    named = [
        named_by(Track(labels | {"process": f"python serve.py (pid {pid} of job 7)"}, []), played)
        for pid in (12, 13)
    ]
    assert named == [frozenset({server_number(1)}), frozenset({STRANGER})]
    assert talk.expect.sets == (named[0],)
    played.probe = Probe(130.0, 134.0, stalled=True, outsiders={12})
    seen = Seen(suspected=120.0, named={float(time): named[0] for time in range(120, 201)})
    scored = judge(played, seen)
    assert (scored.answer, scored.inspect) == (RIGHT, RIGHT)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus on the PATH")
@pytest.mark.xdist_group("hangbench")
@pytest.mark.timeout(900)
def test_programs_do_as_they_say() -> None:
    brief = [shape for shape in find_programs() if not lacks(shape) and shape.backend != "torch"]
    some = [shape for shape in brief if not shape.healthy][::5]
    some.append(dataclasses.replace(bare(some[0]), name=f"{some[0].name}_bare"))
    shapes = [dataclasses.replace(shape, watch=25.0) for shape in some]
    played: list[Played] = []
    with Field(watched=False) as field:
        play(shapes, field, 4, 4.0, lambda _: None, played.append)
    for one in played:
        assert one.sound() == "", (one.shape.name, one.log)
