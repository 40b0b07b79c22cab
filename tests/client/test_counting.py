"""What a lane counts: a gap no longer than others goes a shorter way; all are counted alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagewatch
from stagewatch.record import BUCKET_UNIT_NS, BUCKETS
from tests.client.conftest import Clock
from tests.client.hooking import fresh_client, record

EDGE = BUCKET_UNIT_NS
nanoseconds = st.integers(0, 4 * EDGE) | st.sampled_from([EDGE - 1, EDGE, EDGE + 1, 10**12])


def buckets(times: list[int]) -> tuple[int, ...]:
    """How many of these times each bucket holds, by the definition of `BUCKET_UNIT_NS`."""
    counts = [0] * BUCKETS
    for one in times:
        bounds = [k for k in range(BUCKETS - 1) if one < BUCKET_UNIT_NS * 2**k]
        counts[bounds[0] if bounds else BUCKETS - 1] += 1
    return tuple(counts)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New directories for records, one an example."""
    return map(tmp_path_factory.mktemp, itertools.repeat("records"))


@contextmanager
def begun(directory: Path) -> Iterator[Clock]:
    """A client that has just begun, and its clock."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch, fresh_client(directory):
        patch.setattr("stagewatch.client._lane._read_clock", clock)
        stagewatch.init()
        yield clock


@settings(max_examples=60, deadline=None)
@given(first=nanoseconds, times=st.lists(nanoseconds, min_size=1, max_size=60))
def test_every_gap_is_counted_once_in_its_bucket(
    first: int, times: list[int], directories: Iterator[Path]
) -> None:
    directory = next(directories)
    with begun(directory) as clock, stagewatch.stage("train"):
        for gap in [first, *times]:
            clock.now += gap
            stagewatch.heartbeat()
        totals = record(directory).totals["train"]
    assert totals.gaps == buckets(times)
    assert totals.gap_seconds == pytest.approx(sum(times) / 1e9)
    assert totals.longest_gap == max([first, *times]) / 1e9
    assert totals.recent_gap == pytest.approx(max(times) / 1e9, rel=0.02)


@settings(max_examples=60, deadline=None)
@given(times=st.lists(nanoseconds, min_size=1, max_size=30))
def test_every_pass_is_counted_once_in_its_bucket(
    times: list[int], directories: Iterator[Path]
) -> None:
    directory = next(directories)
    with begun(directory) as clock:
        for lasts in times:
            with stagewatch.stage("reward"):
                clock.now += lasts
        totals = record(directory).totals["reward"]
    assert totals.durations == buckets(times)
    assert totals.duration_seconds == pytest.approx(sum(times) / 1e9)
