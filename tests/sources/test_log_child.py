"""Reading logs that are written, rotated, truncated, flooded and never end."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.sources.log_child import run
from stagewatch.sources.log_patterns import KNOWN, MAX_LINE, user_pattern

MIB = 1 << 20


class Reader:
    """Reads again and again, as the helper does."""

    def __init__(self, pattern: object, **limits: Any) -> None:
        defaults = {"patterns": ["oom=out of memory"], "line_labels": "", "max_files": 10}
        self._arguments = {"pattern": str(pattern), "max_bytes": 4 * MIB} | defaults | limits
        self._kept: Any = None

    def read(self) -> dict[str, Any]:
        return run(self._arguments, self._kept, self)  # type: ignore[arg-type]

    def phase(self, name: str) -> None:
        pass

    def keep(self, leftover: Any) -> None:
        self._kept = leftover


def counts(result: dict[str, Any]) -> dict[tuple[str, ...], int]:
    return {tuple(labels): count for *labels, count, _, _ in result["series"]}


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


OOM = "CUDA out of memory\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rank_5.log"
    path.write_text("before the agent: " + OOM)
    return path


def total(result: dict[str, Any]) -> int:
    return sum(counts(result).values())


def test_what_is_written_after_the_start_counts_and_not_what_was_there(log: Path) -> None:
    reader = Reader(log)
    assert total(reader.read()) == 0
    append(log, "step 1\n" + OOM)
    assert total(reader.read()) == 1
    assert total(reader.read()) == 1, "and only once"


def test_a_file_that_appears_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "*.log")
    reader.read()
    append(tmp_path / "new.log", OOM)
    assert counts(reader.read()) == {("oom", "", "", "", "new.log"): 1}


def test_labels_come_from_the_path(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "{job_id}" / "{role}_{rank}.log")
    reader.read()
    for name in ("540/train_5.log", "541/rollout_12.log", "541/other.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        append(tmp_path / name, OOM)
    assert counts(reader.read()) == {
        ("oom", "540", "train", "5", ""): 1,
        ("oom", "541", "rollout", "12", ""): 1,
    }


def test_labels_come_from_a_group_in_the_line(tmp_path: Path) -> None:
    log = tmp_path / "all.log"
    reader = Reader(log, line_labels=r"^\[rank(?P<rank>\d+)\]")
    log.touch()
    reader.read()
    append(log, f"[rank3]: {OOM}[rank3]: fine\n[rank4]: {OOM}{OOM}")
    found = counts(reader.read())
    assert found["oom", "", "", "3", ""] == 1
    assert found["oom", "", "", "4", ""] == 1
    assert found["oom", "", "", "", "all.log"] == 1


def test_a_line_counts_when_it_has_ended(log: Path) -> None:
    reader = Reader(log)
    reader.read()
    append(log, "CUDA out of")
    assert total(reader.read()) == 0
    append(log, " memory\n")
    assert total(reader.read()) == 1


def test_the_last_words_of_a_process_count_without_an_end(log: Path) -> None:
    reader = Reader(log)
    reader.read()
    append(log, "CUDA out of memory")
    long_ago = time.time() - 60
    os.utime(log, (long_ago, long_ago))
    assert total(reader.read()) == 1
    assert total(reader.read()) == 1


def test_nothing_is_lost_or_counted_twice_over_a_rotation(log: Path) -> None:
    for pattern in (log, f"{log}*"):
        reader = Reader(pattern)
        reader.read()
        append(log, OOM)
        reader.read()
        append(log, OOM)
        log.rename(f"{log}.1")
        append(log, OOM)
        assert total(reader.read()) == 3
        assert total(reader.read()) == 3
        Path(f"{log}.1").unlink()


def test_a_truncated_file_is_read_from_its_beginning(log: Path) -> None:
    reader = Reader(log)
    reader.read()
    append(log, OOM * 10)
    reader.read()
    log.write_text(OOM)
    assert total(reader.read()) == 11


def test_a_file_that_is_gone_takes_its_series_along(log: Path) -> None:
    reader = Reader(log)
    reader.read()
    append(log, OOM)
    reader.read()
    log.unlink()
    result = reader.read()
    assert result["series"] == []
    assert result["watched"] == 0


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


def test_a_line_without_an_end_is_looked_at_up_to_a_limit(log: Path) -> None:
    reader = Reader(log, max_bytes=MIB)
    reader.read()
    append(log, "CUDA out of memory " + "x" * (8 * MIB))
    assert total(reader.read()) == 1
    for _ in range(4):
        append(log, "out of memory " * (MIB // 10))
        assert total(reader.read()) == 1
    append(log, "\n" + OOM)
    assert total(reader.read()) == 2


def test_a_hole_of_a_terabyte_is_no_harm(log: Path) -> None:
    reader = Reader(log)
    reader.read()
    with log.open("r+b") as file:
        file.truncate(1 << 40)
    result = reader.read()
    assert result["read"] <= 4 * MIB
    append(log, "\n" + OOM)
    assert total(reader.read()) == 1


def test_the_time_of_a_line_is_the_one_it_says(log: Path) -> None:
    reader = Reader(log)
    reader.read()
    now = time.time()
    first, last = now - 3600, now - 1800
    for stamp in (last, first):
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stamp))
        append(log, f"{text}.250000Z ERROR {OOM}")
    [[*_, count, began, ended]] = reader.read()["series"]
    assert count == 2
    assert (began, ended) == (int(first) + 0.25, int(last) + 0.25)


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("%Y-%m-%d %H:%M:%S,500", 0.5),
        ("[%Y-%m-%d %H:%M:%S.125]", 0.125),
        ("INFO %Y-%m-%dT%H:%M:%S worker 3:", 0.0),
    ],
)
def test_a_time_without_a_zone_is_local(log: Path, stamp: str, seconds: float) -> None:
    reader = Reader(log)
    reader.read()
    when = int(time.time()) - 600
    append(log, time.strftime(stamp, time.localtime(when)) + " " + OOM)
    [[*_, first, _]] = reader.read()["series"]
    assert first == when + seconds


@pytest.mark.parametrize(
    "stamp", ["1999-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "2024-13-41T99:00:00"]
)
def test_incredible_times_give_way_to_the_time_of_reading(log: Path, stamp: str) -> None:
    reader = Reader(log)
    reader.read()
    append(log, f"{stamp} {OOM}")
    before = time.time()
    [[*_, first, _]] = reader.read()["series"]
    assert before <= first <= time.time()


def test_ranks_in_lines_are_capped(log: Path) -> None:
    reader = Reader(log, line_labels=r"^\[rank(?P<rank>\d+)\]")
    reader.read()
    append(log, "".join(f"[rank{number}]: {OOM}" for number in range(500)))
    found = counts(reader.read())
    assert len(found) <= 65
    assert sum(found.values()) == 500
    assert found["oom", "", "", "other", ""] >= 400


def test_files_are_capped_to_those_written_last(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.log"
        path.touch()
        os.utime(path, (number, number))
    result = Reader(tmp_path / "{rank}.log").read()
    assert (result["watched"], result["left_out"]) == (10, 10)
    assert {rank for _, _, rank, _, _ in result["files"]} == {str(n) for n in range(10, 20)}


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
    assert (result["watched"], result["series"]) == (0, [])


KNOWN_LINES = {
    "cuda_oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "nccl_timeout": "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    "http_5xx": '10.0.0.1 - - "POST /stop HTTP/1.1" 503 -',
    "request_timeout": "Error stopping job: Request timeout",
    "killed": "slurmstepd: error: Detected 1 oom_kill event in StepId=540.0",
    "traceback": "Traceback (most recent call last):",
}


@pytest.mark.parametrize("name", KNOWN_LINES)
def test_known_kinds_of_lines_are_told_apart(name: str) -> None:
    line = KNOWN_LINES[name].encode()
    found = {pattern.name for pattern in KNOWN if list(pattern.lines(b"x\n" + line + b"\ny"))}
    assert name in found
    assert found <= {name, "request_timeout", "cuda_oom"}


@pytest.mark.parametrize(
    "line",
    ["step 10 done in 1.2 s", "HTTP/1.1 200 OK", "status=200", "batch of 500 Samples", "OK -9.5"],
)
def test_healthy_lines_are_none_of_them(line: str) -> None:
    assert not [pattern.name for pattern in KNOWN if list(pattern.lines(line.encode()))]


def test_user_patterns_are_regular_expressions_of_lines() -> None:
    pattern = user_pattern("mismatch=^Batch size (mis)?match.* \\d+$")
    lines = b"a\nBatch size mismatch: 1500\nnot Batch size match 1\nBatch size match 3\n"
    assert [line for _, line in pattern.lines(lines)] == [
        b"Batch size mismatch: 1500",
        b"Batch size match 3",
    ]


@pytest.mark.parametrize("refused", ["", "name", "=x", "name=", "Name=x", "a b=x", "name=("])
def test_odd_user_patterns_are_refused(refused: str) -> None:
    with pytest.raises(ValueError):
        user_pattern(refused)


@given(st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b""))))
def test_each_line_counts_once_however_often_its_word_stands_in_it(lines: list[bytes]) -> None:
    chunk = b"".join(line + b"\n" for line in lines)
    for pattern in (user_pattern("x=a"), user_pattern("x=[a]")):
        expected = [line[:MAX_LINE] for line in lines if b"a" in line]
        assert [line for _, line in pattern.lines(chunk)] == expected


@given(st.binary(max_size=2000))
def test_known_patterns_tolerate_anything(garbage: bytes) -> None:
    for pattern in KNOWN:
        list(pattern.lines(garbage))
