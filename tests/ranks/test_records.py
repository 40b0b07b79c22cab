"""A copy that a writer disturbed is made again, even where both ends of it look at rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagewatch.ranks import records
from stagewatch.ranks.records import copy_record
from stagewatch.record import L_MARKS, L_SEQUENCE, L_STEP, LANES_AT, RECORD_SIZE, WORD
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
        return copies.pop() if copies and size == RECORD_SIZE else read(fd, size, at)

    monkeypatch.setattr(records.os, "pread", pread)
    fd = os.open(file, os.O_RDONLY)
    try:
        assert copy_record(fd) == (patched(raw, new), ())
    finally:
        os.close(fd)
