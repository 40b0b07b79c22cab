"""The record's layout, and what parsing makes of hostile bytes."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from stagewatch import record as layout
from stagewatch.core.exposition import render
from stagewatch.ranks.records import CorruptRecord, RankRecord, parse
from stagewatch.ranks.stages import StagesCollector
from stagewatch.record import (
    L_TOTALS,
    LANE_WORDS,
    LANES_AT,
    MAGIC,
    RECORD_SIZE,
    SCALARS_AT,
    T_DURATION_SUM,
    T_GAPS,
    WORD,
    pad,
    unpad,
)
from stagewatch.stages import STAGES
from tests.records import Shown, patched, real_record

BEHIND_LANES = range(LANES_AT, RECORD_SIZE, LANE_WORDS * WORD)
"""The places up to which an agent copies a record."""

WORDS = RECORD_SIZE // WORD
LANE = LANES_AT // WORD
IDLE_TOTALS = LANE + L_TOTALS

words = st.dictionaries(
    st.integers(0, WORDS - 1),
    st.sampled_from([-1, 0, 1, 2, 11, 12, 2**31, 2**63 - 1, -(2**63)])
    | st.integers(-(2**63), 2**63 - 1),
    max_size=40,
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return real_record(tmp_path_factory.mktemp("ranks"))


def accepted(raw: bytes) -> RankRecord | None:
    """The record, or None where it was refused the one allowed way."""
    try:
        return parse(raw)
    except CorruptRecord as error:
        assert str(error)
        return None


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(4, 64)
)
def test_stored_text_reads_back_as_far_as_it_fits(text: str, size: int) -> None:
    stored = pad(text, size)
    assert len(stored) == size
    assert text.startswith(unpad(stored))
    if len(text.encode()) <= size:
        assert unpad(stored) == text
    else:
        assert len(unpad(stored).encode()) > size - 4


def test_a_real_record_says_what_the_rank_did(real: bytes) -> None:
    record = parse(real)
    assert (record.job_id, record.role, record.rank, record.world_size) == ("540", "train", 3, 8)
    assert record.local_rank is None
    assert record.gpu == "GPU-1"
    assert sum(record.totals["rollout"].durations) == 5
    assert record.scalars == {"reward": 0.5}
    assert record.collectives == {"world": 5}
    assert record.failures == {("train", "MemoryError"): 1}
    assert (record.open.stage, record.open.substage) == ("other", "broadcast")


@given(st.integers(0), st.booleans())
def test_noise_is_read_or_refused(real: bytes, seed: int, begins_well: bool) -> None:
    noise = random.Random(seed).randbytes(RECORD_SIZE)
    assert accepted(noise) is None
    start = 8 * WORD + seed % (RECORD_SIZE - 8 * WORD)
    head = real[:start] if begins_well else MAGIC + real[8 : 3 * WORD]
    accepted((head + noise)[:RECORD_SIZE])


@given(words)
@example({layout.H_RANK: -1})
@example({layout.H_PID: 2**31})
def test_foreign_words_are_read_or_refused(real: bytes, words: dict[int, int]) -> None:
    accepted(patched(real, words))


@given(st.integers(0, RECORD_SIZE - 1).filter(lambda size: size not in BEHIND_LANES))
def test_a_truncated_record_is_refused(real: bytes, size: int) -> None:
    assert accepted(real[:size]) is None
    assert accepted(real + real[:size] + b"x") is None


def test_a_record_cut_behind_a_lane_has_the_lanes_before(real: bytes) -> None:
    threads = [lane.thread for lane in parse(real).lanes]
    assert threads
    for number, size in enumerate(BEHIND_LANES):
        assert [lane.thread for lane in parse(real[:size]).lanes] == threads[:number]


def test_another_version_is_refused_by_its_number(real: bytes) -> None:
    with pytest.raises(CorruptRecord, match="version 2 is not 3"):
        parse(patched(real, {layout.H_VERSION: 2}))


@given(words)
def test_whatever_is_accepted_can_be_exported(real: bytes, words: dict[int, int]) -> None:
    """The exposition of a hostile record is still one that Prometheus can read."""
    record = accepted(patched(real, words))
    if record is None:
        return
    record = dataclasses.replace(record, name="1-00000001.rank")
    fixed: object = Shown(record)
    collector = StagesCollector(fixed, boot_clock=lambda: 1e6)  # type: ignore[arg-type]
    text = render(collector.collect()).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert math.isfinite(sample.value)
            assert sample.labels.get("stage", "idle") in STAGES


@given(st.binary(min_size=200, max_size=200))
def test_text_of_a_record_never_holds_control_characters(real: bytes, noise: bytes) -> None:
    start = layout.S_JOB_ID[0]
    record = accepted(real[:start] + noise + real[start + len(noise) :])
    if record is not None:
        assert (record.job_id + record.role + record.framework + record.host).isprintable()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({layout.H_RANK: -1}, "rank -1"),
        ({layout.H_PID: 0}, "pid 0"),
        ({layout.H_PID: 2**31}, "pid 2147483648"),
        ({IDLE_TOTALS + T_GAPS: -1}, "a count is negative"),
        ({IDLE_TOTALS + T_DURATION_SUM: -(2**63)}, "a count is negative"),
        ({layout.H_FIRST_FAILURE + 2: 12}, "stage code 12"),
        ({LANE + layout.L_FRAMES + layout.F_CODE: -1}, "stage code -1"),
    ],
)
def test_what_no_writer_writes_is_refused(real: bytes, words: dict[int, int], why: str) -> None:
    with pytest.raises(CorruptRecord, match=why):
        parse(patched(real, words))


def test_a_scalar_whose_value_is_not_there_yet_is_absent_and_not_zero(real: bytes) -> None:
    unset = patched(real, {SCALARS_AT // WORD + 5: 0, SCALARS_AT // WORD + 6: 0})
    assert parse(unset).scalars == {}
