"""Reading logs that are written, rotated and truncated."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.logs.log_reader import OOM, Reader, append, counts, total


def test_what_is_written_after_the_start_counts_and_not_what_was_there(log: Path) -> None:
    reader = Reader(log)
    assert total(reader.read()) == 0
    append(log, "step 1\n" + OOM)
    assert total(reader.read()) == 1
    assert total(reader.read()) == 1, "and only once"


def test_a_file_that_appears_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "*.log")
    reader.read()
    append(tmp_path / "new.log", f"{OOM}[rank7]: {OOM}")
    assert counts(reader.read()) == {("oom", "", "", "", "new.log"): 1, ("oom", "", "", "7", ""): 1}


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
