"""Logs that are flooded, never end, or are too many."""

from __future__ import annotations

import os
from pathlib import Path

from tests.logs.log_reader import MIB, OOM, Reader, append, total


def test_of_a_flood_the_beginning_and_the_end_are_read(log: Path) -> None:
    reader = Reader(log, max_bytes=MIB)
    reader.read()
    append(log, "first: " + OOM + "noise of a rank\n" * (40 * MIB // 16) + "last: " + OOM)
    result = reader.read()
    assert total(result) == 2
    assert result["read"] <= MIB
    assert result["read"] + result["skipped"] >= 40 * MIB
    append(log, OOM)
    assert total(reader.read()) == 3, "and it is not behind afterwards"


def test_files_are_capped_to_those_written_last(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.log"
        path.touch()
        os.utime(path, (number, number))
    result = Reader(tmp_path / "{rank}.log").read()
    assert {rank for _, _, rank, _ in result["files"]} == {str(n) for n in range(10, 20)}


def test_pipes_links_and_directories_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(OOM)
    logs = tmp_path / "logs"
    logs.mkdir()
    reader = Reader(logs / "*.log")
    reader.read()
    os.mkfifo(logs / "pipe.log")
    (logs / "link.log").symlink_to(secret)
    (logs / "directory.log").mkdir()
    result = reader.read()
    assert (result["files"], result["series"]) == ([], [])
