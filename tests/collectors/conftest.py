"""Fixtures of the collectors' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagewatch.collectors.gpu import GpuCollector
from stagewatch.sources.gpu_reader import GpuReader
from tests.clock import Clock
from tests.collectors.gpu_scene import INTERVALS, MakeGpu


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
