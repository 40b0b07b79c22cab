"""The ring of events: what a client leaves there, and what reading makes of hostile bytes."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagewatch
from stagewatch import record as layout
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.events import Event, Kind, parse_events
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import EVENT_SIZE, EVENTS, EVENTS_AT, EVENTS_END
from stagewatch.stages import STAGES
from tests.records import forget_names, real_file
from tests.running import Python

LATER = 2**62


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return real_file(tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A record of this process, which a test writes to."""
    forget_names(monkeypatch)
    stagewatch.init("train", job_id=7, rank=0, directory=tmp_path)
    yield next(tmp_path.glob("*.rank"))
    stagewatch.close()


def read(file: Path) -> list[Event]:
    return parse_events(file.read_bytes(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))


@contextmanager
def ranks_in(directory: Path) -> Iterator[RankDirectory]:
    with closing(RecordDirectory(directory, Procfs())) as records:
        yield RankDirectory(records, fresh_for=0.0)


def test_a_stage_leaves_its_entry_with_substage_and_step_and_its_end(rank: Path) -> None:
    with stagewatch.stage("reward", step=4, substage="length_reward"):
        pass
    enter, leave = read(rank)
    assert (enter.kind, enter.lane, enter.stage) == (Kind.ENTER, 0, "reward")
    assert (enter.name, enter.step) == ("length_reward", 4)
    assert (leave.kind, leave.stage, leave.name) == (Kind.LEAVE, "reward", "length_reward")
    assert leave.began_ns == enter.boot_ns
    assert enter.boot_ns <= leave.boot_ns


def test_the_ring_keeps_the_latest_events(rank: Path) -> None:
    for step in range(EVENTS + 100):
        stagewatch.heartbeat(step)
    steps = [event.step for event in read(rank)]
    assert steps == list(range(100, EVENTS + 100))


def test_an_event_that_was_cut_off_in_the_middle_is_left_out(real: bytes) -> None:
    """As `pack_into` stores one: all zero, then word after word."""
    whole = parse_events(real, LATER)
    for words in range(4):
        torn = bytearray(real)
        torn[EVENTS_AT + words * 8 : EVENTS_AT + EVENT_SIZE] = bytes(EVENT_SIZE - words * 8)
        assert parse_events(bytes(torn), LATER) == whole[1:]
    overwritten = bytearray(real)
    overwritten[EVENTS_AT : EVENTS_AT + 8] = struct.pack("<q", whole[-1].boot_ns + 1)
    assert parse_events(bytes(overwritten), LATER) == whole[1:]


def well_formed(event: Event) -> None:
    """What a page or a trace may rely on, whoever wrote the bytes."""
    assert 0 < event.boot_ns <= LATER
    assert event.began_ns is None or 0 <= event.began_ns <= event.boot_ns
    assert event.lane is None or 0 <= event.lane < layout.LANES
    assert event.stage == "" or event.stage in STAGES
    assert event.step is None or event.step >= 0
    assert event.name.isprintable()
    assert len(event.name) <= max(layout.SCALAR_NAME_SIZE, layout.SUBSTAGE_SIZE)


entries = st.tuples(
    st.sampled_from([1, 2**61, -1, 0]) | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 10) | st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, -1, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(entries, max_size=20))
def test_foreign_events_are_read_without_harm(
    real: bytes, entries: list[tuple[int, int, int]]
) -> None:
    raw = bytearray(real)
    for number, (when, what, value) in enumerate(entries):
        struct.pack_into("<qqqq", raw, EVENTS_AT + number * EVENT_SIZE, when, what, value, when)
    for event in parse_events(bytes(raw), LATER):
        well_formed(event)


@given(st.integers(0, EVENTS_END - 1))
def test_a_cut_file_has_no_events(real: bytes, size: int) -> None:
    assert parse_events(real[:size], LATER) == []


def test_threads_write_at_once_and_no_event_is_torn_or_lost(
    python: Python, record_dir: Path
) -> None:
    script = python(
        """
        import threading
        import stagewatch
        stagewatch.init()

        def work():
            for step in range(250):
                with stagewatch.stage("rollout", step=step):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print("done", flush=True)
        import time; time.sleep(1000)
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    script.said("done")
    with ranks_in(record_dir) as ranks:
        (record,) = ranks.look().records
        copy = ranks.recording(record)
    events = parse_events(copy.raw, copy.boot_ns)
    for lane in {event.lane for event in events}:
        of_lane = [event for event in events if event.lane == lane]
        entered = [event.boot_ns for event in of_lane if event.kind is Kind.ENTER]
        left = [event.began_ns for event in of_lane if event.kind is Kind.LEAVE]
        assert entered == left
    assert len(events) == 4 * 250 * 2
