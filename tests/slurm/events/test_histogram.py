"""Histograms that count for as long as the agent lives, and outlive it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm.events.jobs import GrowingHistogram


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_histogram_counts_every_value(values: list[float]) -> None:
    """Cumulative, with a sum, and the same after being saved."""
    histogram = GrowingHistogram((1.0, 60.0, 3600.0))
    for value in values:
        histogram.observe(value)
    loaded = GrowingHistogram.load(json.loads(json.dumps(histogram.dump())), histogram.bounds)
    shown = loaded.exposed()
    assert shown.cumulative == tuple(sum(v <= bound for v in values) for bound in shown.bounds)
    assert (shown.count, shown.sum) == (len(values), pytest.approx(sum(values)))
    assert GrowingHistogram.load(histogram.dump(), (1.0, 2.0)).exposed().count == 0
