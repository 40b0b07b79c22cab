"""Copies of a record: whole, and made again if a writer has disturbed them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagewatch.ranks import records
from stagewatch.ranks.records import copy_record, copy_rest, parse
from stagewatch.record import (
    L_MARKS,
    L_SEQUENCE,
    L_STEP,
    L_THREAD,
    LANE_WORDS,
    LANES,
    LANES_AT,
    WORD,
)
from tests.records import patched, place, real_record

LANE = LANES_AT // WORD
SEQUENCE = 1000


def test_a_store_between_the_copy_and_the_look_back_is_noticed(
    tmp_path: Path, record_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy has a new step beside an old count of marks, under the old sequence number."""
    old = {LANE + L_SEQUENCE: SEQUENCE, LANE + L_STEP: 6, LANE + L_MARKS: 60}
    new = {LANE + L_SEQUENCE: SEQUENCE + 2, LANE + L_STEP: 7, LANE + L_MARKS: 70}
    raw = real_record(tmp_path)
    torn = patched(raw, old | {LANE + L_STEP: 7})
    file = place(record_dir, patched(raw, new))
    copies = [torn]
    read = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        return copies.pop()[:size] if copies and at == 0 else read(fd, size, at)

    monkeypatch.setattr(records.os, "pread", pread)
    fd = os.open(file, os.O_RDONLY)
    try:
        assert copy_record(fd) == (patched(raw, new)[: _end_of(lanes=1)], ())
    finally:
        os.close(fd)


@pytest.mark.parametrize("lanes", range(LANES + 1))
def test_a_copy_up_to_the_last_used_lane_says_the_same_as_the_whole_record(
    tmp_path: Path, record_dir: Path, lanes: int
) -> None:
    threads = {
        LANE + lane * LANE_WORDS + L_THREAD: 100 + lane if lane < lanes else 0
        for lane in range(LANES)
    }
    whole = patched(real_record(tmp_path), threads)
    file = place(record_dir, whole)
    fd = os.open(file, os.O_RDONLY)
    try:
        raw, busy = copy_record(fd)
        rest = copy_rest(fd, raw)
    finally:
        os.close(fd)
    assert (raw, busy) == (whole[: _end_of(lanes)], ())
    assert [lane.thread for lane in parse(raw, rest).lanes] == [*range(100, 100 + lanes)]
    assert parse(raw, rest) == parse(file.read_bytes())


def _end_of(lanes: int) -> int:
    return LANES_AT + lanes * LANE_WORDS * WORD
