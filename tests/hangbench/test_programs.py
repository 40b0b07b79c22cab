"""Small real programs are well formed and cited."""

from __future__ import annotations

import re

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
