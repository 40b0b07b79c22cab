"""Series of the ranks collector for real and forged processes."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.activity import WAIT_CLASS, RanksCollector
from stagewatch.ranks.directory import Census, RankDirectory
from stagewatch.ranks.model import Rank
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import Life
from stagewatch.ranks.wait_class import MIN_SAMPLES
from stagewatch.record import H_CLOSED
from tests.fake_clock import Clock
from tests.fixed_node import FixedNode
from tests.golden import assert_golden
from tests.records import patched, place
from tests.running import Python
from tests.waiting import wait_for


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FixedNode:
    return FixedNode(tmp_path, monkeypatch)


@pytest.fixture
def collector(node: FixedNode) -> RanksCollector:
    return RanksCollector(node.ranks(), node.proc, clock=itertools.count(1000.0).__next__)


def looked(collector: RanksCollector, times: int = MIN_SAMPLES) -> Samples:
    for _ in range(times):
        found = collector.collect()
    return found


def wait_class(found: Samples, *key: str) -> str:
    (name,) = (labels[3] for labels in found.families[WAIT_CLASS] if labels[:3] == key)
    return name


def test_the_whole_exposition(collector: RanksCollector) -> None:
    assert_golden(looked(collector), "ranks.prom")


def test_a_process_that_may_not_be_seen_is_unknown_rather_than_gone(
    node: FixedNode, collector: RanksCollector, tmp_path: Path
) -> None:
    """As under hidepid, or when it ends between two reads."""
    shutil.rmtree(tmp_path / "proc" / "4242" / "task")
    found = looked(collector)
    assert wait_class(found, "540", "train", "0") == "unknown"
    assert wait_class(found, "540", "train", "7") == "parked"


def test_a_rank_that_ended_well_is_shown_no_more(
    record_dir: Path, tmp_path: Path, raw: bytes
) -> None:
    """Its record lingers for a few seconds, so that its totals are not missed."""
    place(record_dir, patched(raw, {H_CLOSED: 1}))
    proc = Procfs(tmp_path)
    ranks = RankDirectory(RecordDirectory(record_dir, proc))
    assert [rank.life for rank in ranks.ranks()] == [Life.CLOSED]
    with pytest.raises(NoData):
        RanksCollector(ranks, proc).collect()


def test_a_class_outlasts_one_look_that_a_busy_machine_misses(
    node: FixedNode, tmp_path: Path
) -> None:
    clock = Clock()
    collector = RanksCollector(node.ranks(), node.proc, clock=clock)

    def now() -> str:
        clock.now += 1
        return wait_class(collector.collect(), "540", "train", "0")

    seen = [now() for _ in range(MIN_SAMPLES)][-1]
    tasks = tmp_path / "proc" / "4242" / "task"
    tasks.rename(away := tmp_path / "away")
    assert [now(), now(), now(), now()] == [seen, seen, seen, "unknown"]
    away.rename(tasks)
    assert now() == seen != "unknown"


class _Only(RankDirectory):
    """A directory of one rank."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def look(self, *, copied: bool = False) -> Census:
        return Census(ranks=(self._rank,))


@pytest.mark.parametrize(("since_progress", "looks"), [(1.0, MIN_SAMPLES + 3), (60.0, 20)])
def test_ranks_that_all_make_progress_are_looked_at_every_fourth_second(
    node: FixedNode, since_progress: float, looks: int
) -> None:
    (rank,) = (one for one in node.ranks().ranks() if one.key == ("540", "train", "0"))
    assert rank.record is not None
    seen = rank.record.progress + since_progress
    clock = Clock()
    collector = RanksCollector(_Only(rank), node.proc, clock=clock, boot_clock=lambda: seen)
    shown: list[Samples] = []
    for look in range(1, 21):
        shown.append(collector.collect())
        known = wait_class(shown[-1], "540", "train", "0") != "unknown"
        assert known == (look >= MIN_SAMPLES)
        clock.now += 1
    assert len({*map(id, shown)}) == looks


def test_a_real_rank_is_followed_from_work_to_a_hang(python: Python, record_dir: Path) -> None:
    script = python(
        """
        import sys, time
        from pathlib import Path
        import stagewatch
        stagewatch.init(job_id=540, rank=0)
        step = 0
        while not Path(sys.argv[1]).exists():
            step += 1
            with stagewatch.stage("train", step=step):
                sum(range(1000))
        while True:
            pass
        """,
        record_dir / "go",
        STAGEWATCH_DIR=str(record_dir),
    )
    proc = Procfs()
    records = RecordDirectory(record_dir, proc)
    ranks = RankDirectory(records, fresh_for=0)
    collector = RanksCollector(ranks, proc)
    key = ("540", "train", "0")
    wait_for(ranks.ranks, "a record that is not in the middle of a store")
    wait_for(lambda: wait_class(collector.collect(), *key) == "compute", "the class compute")
    (record_dir / "go").touch()
    wait_for(lambda: wait_class(collector.collect(), *key) == "spin", "the class spin")
    script.kill()
    wait_for(lambda: wait_class(collector.collect(), *key) == "gone", "the class gone")
