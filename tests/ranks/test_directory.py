"""Which process stands for a rank where records and processes disagree."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Life
from stagewatch.record import H_CREATED_WALL
from tests.fake_clock import Clock
from tests.fakes.open_files import OpenFiles
from tests.golden import FIXTURES
from tests.records import patched, place
from tests.running import Python


@pytest.fixture
def directory(record_dir: Path, clock: Clock, tmp_path: Path) -> Iterator[RankDirectory]:
    """Over a node without any process but those with a record that lives."""
    (tmp_path / "proc").mkdir()
    proc = Procfs(tmp_path / "proc")
    with closing(RecordDirectory(record_dir, proc, clock=clock)) as records:
        yield RankDirectory(records, clock=clock)


def test_a_look_that_costs_much_is_shared_for_longer(
    record_dir: Path, clock: Clock, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    cpu = itertools.count(0.0, 0.3)  # seconds for each look
    with closing(RecordDirectory(record_dir, Procfs(tmp_path / "proc"), clock=clock)) as records:
        directory = RankDirectory(records, clock=clock, cpu_clock=lambda: next(cpu))
        first = directory.look()
        clock.now += 1.4
        assert directory.look() is first
        clock.now += 0.2
        assert directory.look() is not first


def test_a_live_rank_is_copied_now_and_then_but_its_end_is_seen_at_once(
    record_dir: Path, clock: Clock, python: Python, tmp_path: Path
) -> None:
    script = python.ready(
        """
        import sys, time
        from pathlib import Path
        import stagewatch
        stagewatch.init(job_id=540, rank=0)
        for step in range(9):
            stagewatch.heartbeat(step)
            print("ready" if not step else f"step {step}", flush=True)
            while not Path(f"{sys.argv[1]}-{step}").exists():
                time.sleep(0.01)
        """,
        tmp_path / "go",
        STAGEWATCH_DIR=str(record_dir),
    )

    def step(seconds: float, *, copied: bool = False) -> int | None:
        clock.now += seconds
        (rank,) = directory.look(copied=copied).ranks
        assert (rank.life, rank.pid) == (Life.ALIVE, script.pid)
        return rank.record and rank.record.training and rank.record.training.step

    with closing(RecordDirectory(record_dir, Procfs(), clock=clock)) as records:
        directory = RankDirectory(records, copy_seconds=1.5, clock=clock)
        assert step(0) == 0
        (tmp_path / "go-0").touch()
        script.said("step 1")
        assert step(1) == 0
        assert step(1) == 1
        (tmp_path / "go-1").touch()
        script.said("step 2")
        assert step(0.1, copied=True) == 1  # the copy is new
        assert step(0.9) == 1
        assert step(0.1, copied=True) == 2
        script.kill()
        clock.now += 1
        assert [rank.life for rank in directory.look().ranks] == [Life.GONE]


def shown(directory: RankDirectory, clock: Clock) -> list[tuple[str, int, Life]]:
    clock.now += 1
    return [(rank.role, rank.rank, rank.life) for rank in directory.ranks()]


def test_a_living_rank_is_shown_even_if_a_dead_one_is_newer(
    directory: RankDirectory, clock: Clock, record_dir: Path, raw: bytes, python: Python
) -> None:
    script = python.ready(
        """
        import time
        import stagewatch
        stagewatch.init(job_id=540, rank=3)
        print("ready", flush=True)
        time.sleep(600)
        """,
        STAGEWATCH_DIR=str(record_dir),
    )
    place(record_dir, patched(raw, {H_CREATED_WALL: 2**62}), 1)
    assert shown(directory, clock) == [("train", 3, Life.ALIVE)]
    script.kill()
    clock.now += 1
    (rank,) = directory.ranks()
    assert rank.record is not None
    assert (rank.life, rank.pid) == (Life.GONE, script.pid)


def test_a_rank_that_tells_no_gpu_has_the_one_that_its_process_holds_and_held(
    tmp_path: Path, clock: Clock
) -> None:
    proc = Procfs(FIXTURES / "proc")
    scan = EnvironmentScan(proc, OpenFiles(proc.root), patience=60)
    records = RecordDirectory(tmp_path / "absent", proc)
    plain = [rank.gpu for rank in RankDirectory(records, scan).ranks()]
    held = {rank.pid: f"GPU-of-{rank.pid}" for rank in RankDirectory(records, scan).ranks()}
    ranks = RankDirectory(records, scan, clock=clock, gpu_of=lambda pid: held.get(pid, ""))
    expected = [gpu or f"GPU-of-{rank.pid}" for gpu, rank in zip(plain, ranks.ranks(), strict=True)]
    assert "" in plain and [rank.gpu for rank in ranks.ranks()] == expected
    held.clear()
    clock.now += 1
    assert [rank.gpu for rank in ranks.ranks()] == expected


def test_an_unreadable_record_directory_leaves_the_ranks_of_the_environment(tmp_path: Path) -> None:
    (no_directory := tmp_path / "file").write_text("")
    proc = Procfs(FIXTURES / "proc")
    scan = EnvironmentScan(proc, OpenFiles(proc.root), patience=60)
    directory = RankDirectory(RecordDirectory(no_directory, proc), scan)
    absent = RankDirectory(RecordDirectory(tmp_path / "none", proc), scan)
    assert [rank.pid for rank in directory.ranks()] == [rank.pid for rank in absent.ranks()]
    assert directory.ranks()
    with pytest.raises(SourceError, match="Not a directory"):
        directory.look()
