"""Readers and collectors on the fake driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagewatch.gpu.collector import GpuCollector
from stagewatch.gpu.reader import GpuReader
from tests.fake_clock import Clock
from tests.gpu.gpu_scene import INTERVALS, MakeGpu
from tests.gpu.readers import Make


@pytest.fixture
def make_gpu(tmp_path: Path) -> Iterator[MakeGpu]:
    """Makes `gpu` collectors on the fake driver, and closes them."""
    made: list[GpuCollector] = []

    def build(clock: Callable[[], float] | None = None, **arguments: object) -> GpuCollector:
        defaults = {"backoff": (0.01, 0.02), "release_file": tmp_path / "release-gpu"}
        reader = GpuReader(**{**defaults, **arguments})  # type: ignore[arg-type]
        collector = GpuCollector(reader, source="nvml", intervals=INTERVALS, clock=clock or Clock())
        made.append(collector)
        return collector

    yield build
    for collector in made:
        collector.close()


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
