"""What a rank's events become in a trace."""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagewatch
from stagewatch.ranks.records import CorruptRecord, Recording, parse
from stagewatch.record import EVENT_SIZE, EVENTS_AT
from stagewatch.trace.tracks import Slice, Trace, rank_name, rank_parts
from tests.records import forget_names, real_file
from tests.trace.trace_format import Event, checked, names_of


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A record of this process, which a test writes to."""
    forget_names(monkeypatch)
    stagewatch.init("train", job_id=7, rank=0, directory=tmp_path)
    yield next(tmp_path.glob("*.rank"))
    stagewatch.close()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return real_file(tmp_path_factory.mktemp("ranks"))


def recording_of(raw: bytes) -> Recording:
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return Recording(parse(raw), raw, boot, time.time_ns())


def traced(*recordings: Recording, last: float = 0.0) -> list[Event]:
    stream = io.StringIO()
    trace = Trace(stream)
    for recording in recordings:
        trace.process(rank_name(recording, "n1"), rank_parts(recording, last))
    trace.close({"job_id": "7"})
    return checked(stream.getvalue())


def of(file: Path, last: float = 0.0) -> list[Event]:
    return traced(recording_of(file.read_bytes()), last=last)


def slices(events: list[Event]) -> list[tuple[str, str]]:
    """Track and name of each slice, in the order of their beginnings."""
    tracks = names_of(events, "thread_name")
    found = [event for event in events if event["ph"] == "X"]
    found.sort(key=lambda event: (event["ts"], -event["dur"]))
    return [(tracks[event["pid"], event["tid"]], event["name"]) for event in found]


def test_a_nested_stage_lies_within_the_outer_one(rank: Path) -> None:
    with stagewatch.stage("train", step=3), stagewatch.stage("forward"):
        time.sleep(0.002)
    events = of(rank)
    assert slices(events) == [("training thread", "train"), ("training thread", "other/forward")]
    assert {event["args"]["step"] for event in events if event["ph"] == "X"} == {3}


def test_a_stage_that_is_open_lasts_until_the_copy(rank: Path) -> None:
    with stagewatch.stage("reward", substage="length_reward", step=8):
        recording = recording_of(rank.read_bytes())
    (event,) = [event for event in traced(recording) if event["ph"] == "X"]
    assert event["name"] == "reward/length_reward"
    assert event["args"] == {"step": 8, "open": True}
    assert event["ts"] + event["dur"] == recording.wall_ns // 1000


def test_times_are_unix_times(rank: Path) -> None:
    before = time.time()
    stagewatch.heartbeat(1)
    (event,) = [event for event in of(rank) if event["ph"] == "i"]
    assert before - 0.1 <= event["ts"] / 1e6 <= time.time() + 0.1
    assert event["name"] == "step 1"


def test_a_collective_has_a_track_of_its_group(rank: Path) -> None:
    with stagewatch.collective("tp:1", op="all_reduce", size=2):
        pass
    events = of(rank)
    assert slices(events) == [("collectives tp:1", "all_reduce")]
    (event,) = [event for event in events if event["ph"] == "X"]
    assert event["args"] == {"sequence": 1}


def test_a_collective_that_the_rank_is_inside_of_is_open(rank: Path) -> None:
    with stagewatch.collective("world", op="barrier"):
        (event,) = [event for event in of(rank) if event["ph"] == "X"]
    assert event["args"] == {"sequence": 1, "open": True}


def test_only_the_last_seconds_where_that_is_asked(rank: Path) -> None:
    with stagewatch.stage("train", step=1):
        pass
    assert slices(of(rank, last=1000.0))
    time.sleep(0.02)
    assert slices(of(rank, last=0.01)) == []


entries = st.tuples(
    st.sampled_from([1, 5_000, 10_000, 2**40]) | st.integers(1, 2**50),
    st.integers(1, 9) | st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -5_000]) | st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(entries, max_size=60))
def test_events_of_an_enemy_make_a_trace_that_keeps_the_rules(
    real: bytes, entries: list[tuple[int, int, int]]
) -> None:
    raw = bytearray(real)
    for number, (when, what, value) in enumerate(entries):
        struct.pack_into("<qqqq", raw, EVENTS_AT + number * EVENT_SIZE, when, what, value, when)
    try:
        recording = recording_of(bytes(raw))
    except CorruptRecord:
        return
    traced(recording)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=40))
def test_slices_on_a_row_nest_whatever_they_are(times: list[tuple[int, int]]) -> None:
    stream = io.StringIO()
    trace = Trace(stream)
    parts = [Slice("track", start, start + lasted, "one") for start, lasted in times]
    trace.process("process", parts)
    trace.close({})
    checked(stream.getvalue())
