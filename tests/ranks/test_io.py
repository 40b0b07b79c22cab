"""What ranks read and write, by real processes that do."""

from __future__ import annotations

from pathlib import Path

from stagewatch.ranks import io as rank_io
from stagewatch.ranks.io import RankIoCollector
from tests.ranks.fakes import FakeRanks, family_io, program

WRITER = """
import os, subprocess, sys
def write(path, size):
    with open(path, "wb") as file:
        file.write(os.urandom(size)); file.flush(); os.fsync(file.fileno())
for line in sys.stdin:
    who, path, size = line.split()
    if who == "self":
        write(path, int(size))
    else:
        code = "import os,sys\\nf=open(sys.argv[1],'wb'); f.write(os.urandom(int(sys.argv[2])))"
        subprocess.run([sys.executable, "-c", code, path, size], check=True)
    print("written")
"""
MIB = 1 << 20


def test_each_rank_is_charged_with_what_it_wrote(tmp_path: Path) -> None:
    ranks = FakeRanks()
    collector = RankIoCollector(family_io(ranks))
    with program(WRITER) as busy, program(WRITER) as idle:
        ranks.add(busy.pid, 0)
        ranks.add(idle.pid, 1)
        before = collector.collect()
        busy.ask(f"self {tmp_path / 'a'} {8 * MIB}")
        after = collector.collect()

    def written(rank: str, layer: str) -> float:
        labels = ("7", "train", rank, "write", layer)
        return (after.value(rank_io.BYTES, *labels) or 0) - (
            before.value(rank_io.BYTES, *labels) or 0
        )

    assert written("0", "call") >= 8 * MIB
    assert written("0", "storage") >= 8 * MIB
    assert written("1", "call") < MIB


def test_a_rank_that_may_not_be_read_is_absent(tmp_path: Path) -> None:
    ranks = FakeRanks()
    ranks.add(12, 0)
    ranks.add(13, 1)
    stat = "0 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0"
    for pid in (12, 13):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat)
    (tmp_path / "13" / "io").write_text(
        "rchar: 1\nwchar: 2\nsyscr: 0\nsyscw: 0\nread_bytes: 3\nwrite_bytes: 9\n"
        "cancelled_write_bytes: 5\n"
    )
    out = RankIoCollector(family_io(ranks, tmp_path)).collect()
    assert {labels[2] for labels in out.families[rank_io.BYTES]} == {"1"}
    assert out.value(rank_io.BYTES, "7", "train", "1", "write", "storage") == 4
