"""Fixtures of the sources' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stagewatch.sources.gpu_reader import GpuReader
from tests.sources.gpu_readers import Make


@pytest.fixture
def make_reader() -> Iterator[Make]:
    """Makes readers with a quick back-off, and closes them."""
    readers: list[GpuReader] = []

    def build(**arguments: object) -> GpuReader:
        arguments = {"timeout": 20.0, "backoff": (0.01, 0.02), **arguments}
        readers.append(GpuReader(**arguments))  # type: ignore[arg-type]
        return readers[-1]

    yield build
    for reader in readers:
        reader.close()
