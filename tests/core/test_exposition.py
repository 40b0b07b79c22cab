"""Rendering samples: whatever goes in, the parser reads it back equal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families as parse_text

from stagewatch.core.exposition import MAX_LABEL_LENGTH, Histogram, Metric, Samples, render

GAUGE = Metric(
    "test_depth_meters", "gauge", 'How deep, in "metres" \\ fathoms.\nTwo lines.', ("a", "b")
)
COUNTER = Metric("test_dives_total", "counter", "Dives.", ("a",))
TIMES = Metric("test_dive_seconds", "histogram", "Duration of dives.", ("a",))
PLAIN = Metric("test_up", "gauge", "1.")

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
labels = st.text(max_size=MAX_LABEL_LENGTH)


def families(samples: Samples) -> dict[str, Family]:
    """What the parser makes of it."""
    return {family.name: family for family in parse_text(render(samples).decode())}


def stored(text: str) -> str:
    """The label value that may be expected back: lone surrogates and separators cannot pass."""
    return text.encode("utf-8", "replace").decode().replace("\r", " ").replace("\0", " ")


@given(st.dictionaries(st.tuples(labels, labels), numbers, min_size=1, max_size=8))
def test_gauges_read_back_equal(values: dict[tuple[str, str], float]) -> None:
    samples = Samples()
    expected = {}
    for key, value in values.items():
        samples.add(GAUGE, value, *key)
        expected[tuple(map(stored, key))] = float(value)
    found = families(samples)
    family = found["test_depth_meters"]
    assert family.type == "gauge"
    assert {
        (sample.labels.get("a", ""), sample.labels.get("b", "")): float(sample.value)
        for sample in family.samples
    } == expected
    assert len(family.samples) == len(expected)


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20, unique=True).map(sorted),
    st.data(),
    labels,
)
def test_histograms_read_back_equal(bounds: list[float], data: st.DataObject, label: str) -> None:
    steps = data.draw(st.lists(st.integers(0, 1000), min_size=len(bounds), max_size=len(bounds)))
    cumulative = tuple(sum(steps[: number + 1]) for number in range(len(steps)))
    count = cumulative[-1] + data.draw(st.integers(0, 1000))
    total = data.draw(st.floats(0, 1e9))
    samples = Samples()
    samples.add_histogram(TIMES, Histogram(tuple(bounds), cumulative, count, total), label)
    found = families(samples)
    (family,) = found.values()
    assert family.type == "histogram"
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in family.samples
        if sample.name == "test_dive_seconds_bucket"
    }
    assert buckets == dict(zip(bounds, cumulative, strict=True)) | {math.inf: count}
    others = {s.name: s.value for s in family.samples if not s.name.endswith("_bucket")}
    assert others == {"test_dive_seconds_sum": total, "test_dive_seconds_count": count}


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_absent(value: float | None) -> None:
    samples = Samples()
    samples.add(PLAIN, value)
    assert samples.families == {}
    assert render(samples) == b""


def test_a_repeated_label_set_replaces_the_earlier_value() -> None:
    samples = Samples()
    samples.add(COUNTER, 1, "x")
    samples.add(COUNTER, 2, "x")
    assert samples.value(COUNTER, "x") == 2
    found = families(samples)
    assert len(found["test_dives"].samples) == 1


def test_series_beyond_the_limit_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagewatch.core.exposition.MAX_SERIES", 3)
    samples = Samples()
    for number in range(5):
        samples.add(COUNTER, number, number)
    samples.add(COUNTER, 7, 0)  # known: replaced, not dropped
    samples.add_histogram(TIMES, Histogram((1.0,), (1,), 1, 0.5), "x")
    assert samples.dropped == 2
    assert samples.value(COUNTER, 0) == 7
    assert samples.value(COUNTER, 4) is None
    assert len(samples.families[COUNTER]) == 3
