"""Thirty changed inputs for each parser; `make bench ARGS=fuzz` gives them a million."""

from __future__ import annotations

from tests.bench.bench_fuzz import fuzz
from tests.bench.fuzzing.targets import targets


def test_no_parser_crashes() -> None:
    with targets() as every:
        crashes = {target.name: fuzz(target, 30).crashes for target in every}
    assert {name: found for name, found in crashes.items() if found} == {}
