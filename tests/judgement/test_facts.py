"""What `inspect` takes for a rank of the node."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.judgement.facts import RankFacts, RecordState
from stagewatch.judgement.from_node import Observer, observe
from stagewatch.ranks.directory import RankDirectory, rank_directory
from stagewatch.ranks.model import rank_of
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import StageTotals, parse
from stagewatch.ranks.wait_class import WaitClass
from stagewatch.record import BUCKETS, H_CLOSED, H_START_TICKS, RECORD_SIZE
from tests.ranks.record_scene import as_root
from tests.records import patched, place, real_record
from tests.running import Python
from tests.waiting import wait_for


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
    python.ready("import time; print('ready'); time.sleep(600)", STAGEWATCH_JOB_ID=name, RANK="2")
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


def test_a_pause_that_one_rank_has_had_widens_the_budget_of_its_role(
    tmp_path: Path, raw: bytes
) -> None:
    """As in the rules: a save of one rank would else make its peers overdue in theirs."""
    record = parse(raw)  # in the stage `other`
    calm = StageTotals((0,) * BUCKETS, 0.0, (9, *(0,) * (BUCKETS - 1)), 0.0)
    paused = calm._replace(longest_gap=40.0, recent_gap=40.0)
    ranks = [
        rank_of(replace(record, role=role, rank=rank, totals={"other": totals}))
        for role, rank, totals in (
            ("train", 0, calm),
            ("train", 1, paused),
            ("train", 2, calm),
            ("rollout", 0, calm),
        )
    ]
    facts = Observer(Procfs(tmp_path)).facts(ranks)
    assert [(fact.role, fact.budget_seconds) for fact in facts] == [
        ("train", 60.0),
        ("train", 60.0),
        ("train", 60.0),
        ("rollout", 10.0),
    ]


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
    script = python.ready(CALLS, STAGEWATCH_DIR=str(record_dir))

    def calls() -> list[dict[str, float]]:
        with rank_directory(record_dir, Procfs()) as ranks:
            facts = observe(ranks, Procfs(), looks=1, pause=0.0)
        return [dict(fact.calls) for fact in facts if fact.job_id == "calls-540"]

    (waiting,) = calls()
    assert list(waiting) == ["search"]
    assert waiting["search"] >= 0.0
    script.kill()
    assert calls() == [{}]


RETRIES = """
import time
import stagewatch

stagewatch.init("rollout", job_id="retries-540", rank=0)
stagewatch.heartbeat(5)
print("ready", flush=True)
while True:
    stagewatch.heartbeat()
    time.sleep(0.02)
"""


def test_a_rank_that_tries_again_for_ever_grows_old_at_its_step(
    python: Python, record_dir: Path
) -> None:
    python(RETRIES, STAGEWATCH_DIR=str(record_dir)).said("ready")

    def older_than_its_marks() -> bool:
        with rank_directory(record_dir, Procfs()) as ranks:
            facts = observe(ranks, Procfs(), looks=1, pause=0.0)
        ages = [
            (fact.step_age_seconds, fact.progress_age_seconds)
            for fact in facts
            if fact.job_id == "retries-540"
        ]
        return any(step and mark and step > mark + 1.0 for step, mark in ages)

    wait_for(older_than_its_marks, "the step is older than the marks of progress")


WORK = '''
import subprocess, sys, time
import stagewatch

stagewatch.init("train", job_id="work-540", rank=int(sys.argv[1]))
compile = """
import os
from stagewatch.core.processes import die_with_parent
die_with_parent(os.getppid())
while True: bytes(bytearray(1 << 22))
"""
with stagewatch.stage("train"):
    print("ready", flush=True)
    if sys.argv[1] == "0":
        subprocess.run([sys.executable, "-c", compile])
    with open("/dev/null", "wb", buffering=0) as file:
        while sys.argv[1] == "1":
            file.write(bytes(1 << 20))
            time.sleep(0.05)
    time.sleep(600)
'''


def test_a_rank_is_at_work_while_it_writes_or_a_child_compiles(
    python: Python, record_dir: Path
) -> None:
    """Neither shows in how its own thread waits."""
    for rank in range(3):
        python.ready(WORK, str(rank), STAGEWATCH_DIR=str(record_dir))

    def at_work() -> dict[int, bool]:
        proc = Procfs()
        with rank_directory(record_dir, proc) as ranks, closing(GuardedFiles(proc.root)) as files:
            facts = observe(ranks, proc, looks=5, pause=0.2, files=files)
        return {fact.rank: fact.at_work for fact in facts if fact.job_id == "work-540"}

    wait_for(lambda: at_work() == {0: True, 1: True, 2: False}, "two at work")
