"""Baselines and deviations: numbers by hand, and what holds for all series."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stagewatch.report.deviations import Signal, baseline_of, sustained

NUMBERS = some.floats(-1e9, 1e9, allow_nan=False)
GAPPY = some.lists(some.none() | NUMBERS, max_size=60)


def test_mean_two_sigma_median_and_mad_by_hand() -> None:
    base = baseline_of([2.0, 4.0, None, 4.0, 5.0, 10.0])
    assert base.count == 5
    assert base.mean == 5.0
    assert base.deviation == 3.0  # sqrt((9 + 1 + 1 + 0 + 25) / 4)
    assert base.two_sigma == (-1.0, 11.0)
    assert base.median == 4.0
    assert base.mad == 1.0  # of 2, 0, 0, 1, 6
    assert (base.low, base.high) == (2.0, 10.0)


def test_an_age_is_compared_with_the_highest_of_the_baseline() -> None:
    base = baseline_of([0.0, 5.0, 10.0, 15.0, 20.0])
    assert base is not None
    age = Signal("", "s", 2.0, "", age=True)
    assert age.severity(base, 30.0) <= 1 < age.severity(base, 30.1)
    assert age.severity(base, -100.0) == 0
    assert age.severity(base, 40.0) == 2.0


@given(GAPPY)
def test_nothing_of_a_baseline_deviates_from_it(values: list[float | None]) -> None:
    base = baseline_of(values)
    if base is None:
        return
    for age in (False, True):
        if age and base.high < 0:
            continue
        signal = Signal("", "", 0.0, "", age=age)
        assert not any(severity for severity in signal.severities(base, values) if severity)


def severities(text: str) -> list[float | None]:
    """`1` deviates, `0` does not, `.` is not known."""
    return [{"1": 2.0, "0": 0.5, ".": None}[c] for c in text]


@pytest.mark.parametrize(
    ("text", "begin", "found"),
    [
        ("0000", 0, None),
        ("0110", 0, None),
        ("0111", 0, 1),
        ("1011", 0, 0),  # three of four
        ("110011", 0, None),
        ("1.1.1", 0, 0),  # what is not known does not count
        ("11......1", 0, None),  # nor does it keep a run alive for ever
        ("111000", 1, None),  # before the injection is no effect of it
        ("111111", 2, 2),
    ],
)
def test_a_deviation_counts_once_it_is_sustained(text: str, begin: int, found: int | None) -> None:
    assert sustained(severities(text), begin) == found
