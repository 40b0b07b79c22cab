"""Logs that are flooded, never end, or are too many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.logs.log_reader import MIB, OOM, Reader, append, counts, total


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


SLOW = {
    "lost=loss.*nan.*rank": "loss nan " * 450,
    "all=^(x+)+$": "x" * 64 + "!",
    "far=CUDA.*lost": "CUDA" * (MIB // 8),
}
"""Lines that take patterns of a site quadratic, cubic or exponential time."""


@pytest.mark.parametrize("pattern", SLOW)
def test_lines_that_take_a_pattern_for_ever_hide_no_other_log(pattern: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "{job_id}.log", patterns=[pattern, "oom=out of memory"])
    reader.read()
    line = f"{SLOW[pattern]}\n"
    append(tmp_path / "540.log", OOM)
    append(tmp_path / "541.log", line * (2 * MIB // len(line)))
    found = reader.read()
    assert counts(found) == {("oom", "540", "", "", "540.log"): 1}
    assert found["read"] + found["skipped"] >= 2 * MIB - len(line)
    append(tmp_path / "541.log", f"\n{OOM}")
    assert total(reader.read()) == 2, "and it is not behind afterwards"
