"""The plugin and the harness, built once; and rings that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nccl.ring import Ring, built


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def ring(plain: tuple[Path, Path], tmp_path: Path) -> Iterator[Callable[..., Ring]]:
    rings: list[Ring] = []

    def make(programs: tuple[Path, Path] = plain, *, ranks: int = 8) -> Ring:
        rings.append(Ring(programs, tmp_path / str(len(rings)), ranks))
        return rings[-1]

    yield make
    for one in rings:
        one.close()
