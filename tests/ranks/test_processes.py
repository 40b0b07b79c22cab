"""Processes against their limits, on real processes."""

from __future__ import annotations

import resource
from pathlib import Path

from stagewatch.host.cgroups import Cgroups
from stagewatch.host.mounts import Mount
from stagewatch.ranks import processes
from stagewatch.ranks.processes import HOLD_SECONDS, ProcessesCollector
from tests.fakes.open_files import OpenFiles
from tests.ranks.fakes import FakeRanks, families, program
from tests.waiting import wait_for

PROC = Path("/proc")

RANK = ("7", "train", "0")
HOLDER = """
import os, subprocess, sys
held = []
for line in sys.stdin:
    if line.startswith("open"):
        held += [open("/dev/null") for _ in range(int(line.split()[1]))]
    elif line.startswith("zombie"):
        if os.fork() == 0:
            os._exit(0)
    print("done")
"""


def test_this_node_has_figures_for_the_whole_of_it() -> None:
    out = ProcessesCollector(families(FakeRanks()), PROC, OpenFiles(PROC)).collect()
    for metric in (
        processes.OOM_KILLS,
        processes.TASKS,
        processes.TASKS_LIMIT,
    ):
        assert out.value(metric) is not None, metric.name
    assert (out.value(processes.TASKS) or 0) >= 1


def test_pages_of_another_numa_node_are_told_apart(tmp_path: Path) -> None:
    for node, (local, other) in enumerate([(100, 7), (200, 5)]):
        directory = tmp_path / f"devices/system/node/node{node}"
        directory.mkdir(parents=True)
        (directory / "numastat").write_text(
            f"numa_hit 999\nnuma_miss 0\nlocal_node {local}\nother_node {other}\n"
        )
    collector = ProcessesCollector(families(FakeRanks()), PROC, OpenFiles(PROC), sys=tmp_path)
    assert collector.collect().families[processes.NUMA_PAGES] == {("local",): 300, ("other",): 12}
    (directory / "numastat").unlink()  # a node with one NUMA node has no other one
    assert processes.NUMA_PAGES not in collector.collect().families


def test_open_files_of_a_rank_stand_beside_their_limit() -> None:
    ranks = FakeRanks()
    collector = ProcessesCollector(families(ranks), PROC, OpenFiles(PROC))
    with program(HOLDER) as rank:
        ranks.add(rank.pid, 0)
        rank.ask("nothing")
        before = collector.collect().value(processes.RANK_FILES, *RANK)
        assert before is not None
        rank.ask("open 50")
        out = collector.collect()
    assert out.value(processes.RANK_FILES, *RANK) == before + 50
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert out.value(processes.RANK_FILES_LIMIT, *RANK) == soft


def test_children_that_nobody_reaps_show_as_zombies_of_their_rank() -> None:
    ranks = FakeRanks()
    collector = ProcessesCollector(families(ranks), PROC, OpenFiles(PROC))
    with program(HOLDER) as rank:
        ranks.add(rank.pid, 0)
        rank.ask("zombie")
        rank.ask("zombie")
        wait_for(lambda: collector.collect().value(processes.RANK_ZOMBIES, *RANK) == 2, "zombies")
        out = collector.collect()
        assert out.value(processes.RANK_PROCESSES, *RANK) == 3


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
        OpenFiles(proc),
        cgroups=Cgroups(proc, [Mount(str(tmp_path / "cg"), "cgroup2", "x", "0:1")]),
        clock=lambda: now[0],
    )
    assert collector.collect().value(processes.RANK_OOM_KILLS, *RANK) == 0
    ranks.ranks.clear()
    (group / "memory.events").write_text("oom_kill 1\n")
    assert collector.collect().value(processes.RANK_OOM_KILLS, *RANK) == 1
    now[0] = HOLD_SECONDS + 1
    collector.collect()
    assert processes.RANK_OOM_KILLS not in collector.collect().families
