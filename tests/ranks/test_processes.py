"""Control groups of ranks, and the memory of the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.host.cgroups import Cgroups
from stagewatch.host.mounts import Mount
from stagewatch.ranks import processes
from stagewatch.ranks.processes import HOLD_SECONDS, ProcessesCollector
from tests.ranks.fakes import FakeRanks, families

PROC = Path("/proc")

RANK = ("7", "train", "0")


def test_pages_of_another_numa_node_are_told_apart(tmp_path: Path) -> None:
    for node, (local, other) in enumerate([(100, 7), (200, 5)]):
        directory = tmp_path / f"devices/system/node/node{node}"
        directory.mkdir(parents=True)
        (directory / "numastat").write_text(
            f"numa_hit 999\nnuma_miss 0\nlocal_node {local}\nother_node {other}\n"
        )
    collector = ProcessesCollector(families(FakeRanks()), PROC, sys=tmp_path)
    assert collector.collect().families[processes.NUMA_PAGES] == {("local",): 300, ("other",): 12}
    (directory / "numastat").unlink()  # a node with one NUMA node has no other one
    with pytest.raises(NoData):
        collector.collect()


def test_kills_in_a_cgroup_are_shown_a_while_after_the_rank_is_gone(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cg" / "job"
    (proc / "9").mkdir(parents=True)
    group.mkdir(parents=True)
    (proc / "9" / "stat").write_text("9 (x) S 1 " + "0 " * 15 + "1 0 5 0 0")
    (proc / "9" / "cgroup").write_text("0::/job\n")
    (group / "memory.events").write_text("oom_kill 0\n")
    now = [0.0]
    ranks = FakeRanks()
    ranks.add(9, 0)
    collector = ProcessesCollector(
        families(ranks, proc),
        proc,
        cgroups=Cgroups(proc, [Mount(str(tmp_path / "cg"), "cgroup2", "x", "0:1")]),
        clock=lambda: now[0],
    )
    assert collector.collect().value(processes.RANK_OOM_KILLS, *RANK) == 0
    ranks.ranks.clear()
    (group / "memory.events").write_text("oom_kill 1\n")
    assert collector.collect().value(processes.RANK_OOM_KILLS, *RANK) == 1
    now[0] = HOLD_SECONDS + 1
    collector.collect()
    with pytest.raises(NoData):
        collector.collect()
