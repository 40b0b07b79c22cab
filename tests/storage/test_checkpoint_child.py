"""Looking through directories of checkpoints, as trainers leave them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stagewatch.checkpoint.names import step_of
from stagewatch.storage.checkpoint_child import run


class Looker:
    """Looks again and again, as the helper does."""

    def __init__(self, pattern: object, **limits: float) -> None:
        defaults = {"max_entries": 1000, "seconds": 60, "max_jobs": 64, "max_age": 1e10}
        self._arguments = {"pattern": str(pattern), **defaults, **limits}
        self._kept: Any = None

    def limit(self, **limits: float) -> None:
        self._arguments |= limits

    def look(self) -> dict[str, Any]:
        return run(self._arguments, self._kept, self)  # type: ignore[arg-type]

    def phase(self, name: str) -> None:
        pass

    def keep(self, leftover: Any) -> None:
        self._kept = leftover


def write(path: Path, size: int, modified: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (modified, modified))
    os.utime(path.parent, (modified, modified))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("global_step_10", 10),
        ("iter_0000120", 120),
        ("step_10_rank_3.pt", 10),
        ("epoch=3-step=500.ckpt", 500),
        ("10", 10),
        ("latest", None),
        ("config.json", None),
    ],
)
def test_steps_are_read_from_names(name: str, expected: int | None) -> None:
    assert step_of(name)[1] == expected


def test_a_truncated_checkpoint_stands_beside_the_size_of_the_one_before(tmp_path: Path) -> None:
    write(tmp_path / "step_9.pt", 14_000, 100)
    write(tmp_path / "step_10.pt", 2_000, 200)
    found = Looker(tmp_path).look()["jobs"][""]
    assert (found["step"], found["size"], found["previous_size"]) == (10, 2_000, 14_000)
    assert found["growing"] is None, "one look cannot tell"


def test_shards_of_one_step_are_one_checkpoint(tmp_path: Path) -> None:
    for step, shards in ((10, 4), (20, 3)):
        for shard in range(shards):
            write(tmp_path / f"global_step_{step}" / f"rank_{shard}" / "model.pt", 100, step)
    found = Looker(tmp_path).look()["jobs"][""]
    assert (found["step"], found["files"], found["size"]) == (20, 3, 300)
    assert found["previous_size"] == 400


def test_a_checkpoint_that_is_being_written_grows(tmp_path: Path) -> None:
    looker = Looker(tmp_path)
    write(tmp_path / "step_1.pt", 10, 100)
    looker.look()
    write(tmp_path / "step_1.pt", 20, 101)
    assert looker.look()["jobs"][""]["growing"] == 1
    assert looker.look()["jobs"][""]["growing"] == 0


def test_jobs_are_named_by_the_placeholder_and_sorted_by_their_last_change(tmp_path: Path) -> None:
    for job, modified in (("540", 300), ("541", 200), ("542", 100)):
        write(tmp_path / f"run-{job}" / "checkpoints" / "step_1.pt", 10, modified)
    (tmp_path / "run-543").mkdir()
    result = Looker(tmp_path / "run-{job}" / "checkpoints", max_jobs=2).look()
    assert list(result["jobs"]) == ["540", "541"]
    assert not result["complete"], "one job was left out"


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "step_9.pt", 9000, 900)
    here = tmp_path / "here"
    write(here / "step_1.pt", 10, 100)
    (here / "step_9.pt").symlink_to(elsewhere / "step_9.pt")
    (here / "step_8").symlink_to(elsewhere)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "540").symlink_to(elsewhere)
    assert Looker(here).look()["jobs"][""]["step"] == 1
    assert Looker(tmp_path / "jobs" / "{job}").look()["jobs"] == {}


def test_a_crowded_directory_does_not_hide_those_of_other_jobs(tmp_path: Path) -> None:
    for job in range(5):
        write(tmp_path / str(job) / "step_1.pt", 10, 1000 - job)
    looker = Looker(tmp_path / "{job}", max_entries=50)
    assert looker.look()["complete"]
    for number in range(100):
        write(tmp_path / "0" / f"step_{number}.pt", 10, 2000 + number)
    result = looker.look()
    assert not result["complete"]
    assert result["jobs"].keys() == {"1", "2", "3", "4"}


def test_a_missing_directory_is_no_complete_look(tmp_path: Path) -> None:
    assert Looker(tmp_path / "absent").look() == {"jobs": {}, "complete": False}


def test_a_checkpoint_overwritten_in_place_is_compared_with_itself(tmp_path: Path) -> None:
    looker = Looker(tmp_path)
    write(tmp_path / "last.pt", 1400, 100)
    looker.look()
    looker.look()
    write(tmp_path / "last.pt", 200, 200)
    found = looker.look()["jobs"][""]
    assert (found["size"], found["previous_size"], found["growing"]) == (200, 1400, 1)
    assert looker.look()["jobs"][""]["previous_size"] == 1400


def test_what_was_known_outlasts_an_incomplete_look(tmp_path: Path) -> None:
    write(tmp_path / "step_1.pt", 1400, 100)
    looker = Looker(tmp_path)
    looker.look()
    looker.limit(max_entries=0)
    assert not looker.look()["complete"]
    looker.limit(max_entries=100)
    (tmp_path / "step_1.pt").unlink()
    write(tmp_path / "step_2.pt", 10, 200)
    assert looker.look()["jobs"][""]["previous_size"] == 1400
