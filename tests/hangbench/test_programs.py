"""Small real programs are well formed and cited."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from tests.hangbench.player import TORCH_PYTHON, lacks
from tests.hangbench.shape import PROGRAMS, find_programs


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


def test_a_case_whose_package_is_missing_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TORCH_PYTHON, sys.executable)
    (shape,) = find_programs(("ray_blocked_loop",))
    assert lacks(replace(shape, needs=("no_such_package",))).startswith("needs no_such_package (")
    assert not lacks(replace(shape, needs=("json",)))
