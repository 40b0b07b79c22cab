"""A `gpu` collector on the fake driver, and what a scrape of it shows."""

from __future__ import annotations

from collections.abc import Callable

from stagewatch.core.collector import Collector
from stagewatch.core.exposition import render
from stagewatch.gpu.collector import GpuCollector
from tests.exposition import Series, series_of

MakeGpu = Callable[..., GpuCollector]
INTERVALS = {"fast": 1.0, "medium": 10.0, "slow": 60.0}
UUID = "GPU-fa4e0000-0000-4000-8000-00000000000"
"""Less its last digit, which is the index, the UUID of a whole GPU."""


def metrics(collector: Collector) -> Series:
    """What a scrape would show of one collection."""
    return series_of(render(collector.collect()).decode())


def of(series: Series, name: str, **labels: str) -> list[float]:
    """The values of a metric whose labels include these, in order of the GPU."""
    found = [
        (dict(key).get("gpu", ""), value)
        for (metric, key), value in series.items()
        if metric == name and labels.items() <= dict(key).items()
    ]
    return [value for _, value in sorted(found)]


def labels_of(series: Series, name: str, **labels: str) -> list[dict[str, str]]:
    """The label sets of a metric that include these, in order of the GPU."""
    found = [dict(key) for (metric, key) in series if metric == name]
    return sorted(
        (one for one in found if labels.items() <= one.items()), key=lambda one: one.get("gpu", "")
    )
