"""A record states its identity once; a file that changes it is a record no more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import stagewatch
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Life
from stagewatch.record import H_RANK
from tests.records import patched, place


@pytest.fixture
def reader(record_dir: Path) -> Iterator[RecordDirectory]:
    with closing(RecordDirectory(record_dir, Procfs())) as reader:
        yield reader


def test_a_record_that_takes_number_after_number_is_dropped(
    reader: RecordDirectory, record_dir: Path, raw: bytes
) -> None:
    place(record_dir, patched(raw, {H_RANK: 11}))
    assert len(reader.read()) == 1
    place(record_dir, patched(raw, {H_RANK: 12}))
    assert reader.read() == []


def test_a_rank_is_still_seen_when_its_directory_is_taken_away(
    reader: RecordDirectory, record_dir: Path
) -> None:
    """The rank writes on into the file that it has mapped; its totals must not be counted twice
    when the directory is back."""
    stagewatch.init("train", job_id=540, rank=3, directory=record_dir)
    try:
        assert len(reader.read()) == 1
        shutil.rmtree(record_dir)
        assert [record.life for record in reader.read()] == [Life.ALIVE]
        record_dir.mkdir()
        assert [record.life for record in reader.read()] == [Life.ALIVE]
    finally:
        stagewatch.close()
