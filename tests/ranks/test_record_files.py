"""Files in the record directory that are no record, or no longer a whole one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from stagewatch.ranks.record_directory import HALTED_SECONDS, RECHECK_SECONDS, RecordDirectory
from stagewatch.record import FILE_SIZE, LANES_AT, WORD
from tests.fake_clock import Clock
from tests.records import patched, place


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("symlink", "symlink"),
        ("hard link", "not_a_file"),
        ("fifo", "not_a_file"),
        ("socket", "unreadable"),
        ("short", "size"),
        ("huge", "size"),
        ("noise", "corrupt"),
        ("name", "name"),
        ("not ASCII digits", "name"),
    ],
)
def test_hostile_files_are_counted_and_harm_nothing(
    kind: str, reason: str, reader: RecordDirectory, shared: Path, raw: bytes, tmp_path: Path
) -> None:
    place(shared, raw, 1)
    hostile = shared / "2-00000002.rank"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(raw)
    if kind == "symlink":
        hostile.symlink_to(elsewhere)
    elif kind == "hard link":
        (shared / "passwd").write_bytes(raw)
        hostile.hardlink_to(shared / "passwd")
        (shared / "passwd").rename(tmp_path / "passwd")
    elif kind == "fifo":
        os.mkfifo(hostile)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(hostile))
    elif kind == "huge":
        with hostile.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "name":
        (shared / "core.1234").write_bytes(raw)
    elif kind == "not ASCII digits":
        (shared / "٣-00000002.rank").write_bytes(raw)
    else:
        hostile.write_bytes(raw[:-1] if kind == "short" else b"\1" * FILE_SIZE)
    for _ in range(2):
        assert [record.name for record in reader.read()] == ["1-00000001.rank"]
        assert reader.skipped == {reason: 1}


def test_a_file_that_becomes_a_record_is_found_later(
    reader: RecordDirectory, clock: Clock, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    file.write_bytes(b"")
    assert reader.read() == []
    file.write_bytes(raw)
    clock.now += RECHECK_SECONDS
    assert len(reader.read()) == 1
    assert not reader.skipped


def test_a_record_cut_short_while_it_is_open_is_no_crash(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    assert len(reader.read()) == 1
    os.truncate(file, 100)
    assert reader.read() == []


def test_a_writer_that_died_in_the_middle_of_a_store_is_read_in_the_end(
    reader: RecordDirectory, clock: Clock, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    (good,) = reader.read()
    file.write_bytes(patched(raw, {LANES_AT // WORD: 10_001, LANES_AT // WORD + 4: 77}))
    assert reader.read() == [good]
    clock.now += HALTED_SECONDS
    (record,) = reader.read()
    assert record.lanes[0].step == 77
