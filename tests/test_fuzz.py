"""Thirty changed inputs for each parser; `make bench ARGS=fuzz` gives them a million."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.bench_fuzz import fuzz
from tests.bench.fuzzing.target import Target
from tests.bench.fuzzing.targets import targets


@pytest.fixture(scope="module")
def every() -> Iterator[dict[str, Target]]:
    with targets() as found:
        yield {target.name: target for target in found}


def test_no_parser_crashes(every: dict[str, Target]) -> None:
    crashes = {name: fuzz(target, 30).crashes for name, target in every.items()}
    assert {name: found for name, found in crashes.items() if found} == {}
