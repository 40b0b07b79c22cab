"""What `inspect` takes for a rank of the node."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory, rank_directory
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import H_CLOSED, H_START_TICKS, RECORD_SIZE
from stagewatch.verdict.facts import RankFacts, RecordState, observe
from tests.ranks.record_scene import as_root
from tests.records import patched, place, real_record
from tests.running import Python


@pytest.fixture
def raw(tmp_path: Path) -> bytes:
    draft = tmp_path / "draft-of-one"
    draft.mkdir()
    return patched(real_record(draft), {H_START_TICKS: 1})


@pytest.fixture
def directory(record_dir: Path, tmp_path: Path) -> Iterator[RankDirectory]:
    proc = Procfs(tmp_path)
    with closing(RecordDirectory(record_dir, proc)) as records:
        yield RankDirectory(records)


def look(directory: RankDirectory, proc: Path) -> list[RankFacts]:
    return observe(directory, Procfs(proc), looks=1, pause=0.0)


def test_a_rank_that_ended_well_is_none_any_more(
    directory: RankDirectory, record_dir: Path, tmp_path: Path, raw: bytes
) -> None:
    place(record_dir, patched(raw, {H_CLOSED: 1}))
    assert look(directory, tmp_path) == []


def test_a_killed_rank_is_gone_with_its_first_failure(
    directory: RankDirectory, record_dir: Path, tmp_path: Path, raw: bytes
) -> None:
    place(record_dir, raw)
    (found,) = look(directory, tmp_path)
    assert (found.rank, found.wait_class, found.state) == (3, WaitClass.GONE, "-")
    assert (found.stage, found.substage) == ("other", "broadcast")
    assert found.first_failure == "MemoryError in train"


@as_root
def test_a_rank_without_a_record_is_told_from_one_that_found_no_room(
    python: Python, tmp_path: Path
) -> None:
    """On a tmpfs of a few pages, as /run is where something else has filled it."""
    name = f"job-{uuid.uuid4().hex[:12]}"
    script = python(
        "import time; print('ready'); time.sleep(600)", STAGEWATCH_JOB_ID=name, RANK="2"
    )
    script.said("ready")
    (small := tmp_path / "small").mkdir()

    def state() -> list[RecordState]:
        with rank_directory(small, Procfs()) as ranks:
            facts = observe(ranks, Procfs(), looks=1, pause=0.0)
        return [fact.record for fact in facts if fact.job_id == name]

    assert state() == [RecordState.NONE]
    mount = ["mount", "-t", "tmpfs", "-o", f"size={RECORD_SIZE // 2}", "tmpfs", str(small)]
    subprocess.run(mount, check=True)
    try:
        assert state() == [RecordState.NO_ROOM]
        subprocess.run(["mount", "-o", "remount,size=1M,nr_inodes=1", str(small)], check=True)
        assert state() == [RecordState.NO_ROOM]  # there are bytes, and no file can be made
        subprocess.run(["mount", "-o", "remount,nr_inodes=64", str(small)], check=True)
        assert state() == [RecordState.NONE]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


CALLS = """
import time
import stagewatch

stagewatch.init("rollout", job_id="calls-540", rank=0)
with stagewatch.call("reward"):
    pass
with stagewatch.stage("rollout"), stagewatch.call("search"):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_rank_shows_the_calls_that_it_waits_for_until_it_is_gone(
    python: Python, record_dir: Path
) -> None:
    script = python(CALLS, STAGEWATCH_DIR=str(record_dir))
    script.said("ready")

    def calls() -> list[dict[str, float]]:
        with rank_directory(record_dir, Procfs()) as ranks:
            facts = observe(ranks, Procfs(), looks=1, pause=0.0)
        return [dict(fact.calls) for fact in facts if fact.job_id == "calls-540"]

    (waiting,) = calls()
    assert list(waiting) == ["search"]
    assert waiting["search"] >= 0.0
    script.kill()
    assert calls() == [{}]
