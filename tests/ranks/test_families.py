"""Which processes count toward a rank, on real process trees, and counters over them."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.ranks.families import AFRESH_SECONDS, ProcessFamilies, RankCounter
from stagewatch.ranks.model import Rank
from tests.fake_clock import Clock
from tests.ranks.fakes import FakeRanks, families, program

TREE = """
import subprocess, sys
children = []
for line in sys.stdin:
    if line.strip() == "child":
        children.append(subprocess.Popen(["sleep", "1000"]))
        print(children[-1].pid)
    else:
        for child in children:
            child.kill(); child.wait()
        print("ended")
"""
ORPHAN = """
import subprocess, sys
for line in sys.stdin:
    middle = subprocess.Popen(
        [sys.executable, "-uc", "import subprocess, sys\\n"
         "print(subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL).pid)\\n"
         "sys.stdin.readline()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(middle.stdout.readline().strip())
    sys.stdin.readline()
    middle.stdin.write("go\\n"); middle.stdin.flush(); middle.wait()
    print("gone")
"""


def test_descendants_belong_to_their_rank_while_they_live() -> None:
    ranks = FakeRanks()
    look = families(ranks).look
    with program(TREE) as one, program(TREE) as two:
        ranks.add(one.pid, 0)
        ranks.add(two.pid, 1)
        child = int(one.ask("child"))
        found = look()
        assert found.members["7", "train", "0"] == (one.pid, child)
        assert found.members["7", "train", "1"] == (two.pid,)
        assert found.rank_of[child] == ("7", "train", "0")
        assert os.getpid() in found.processes
        assert os.getpid() not in found.rank_of
        one.ask("end")
        assert look().members["7", "train", "0"] == (one.pid,)


def test_threads_of_the_kernel_are_read_once_a_minute() -> None:
    asked: list[set[int]] = []

    class Asked(Procfs):
        def stats(self, pids: Iterable[int]) -> dict[int, ProcessStat]:
            asked.append(wanted := set(pids))
            return super().stats(wanted)

    clock = Clock()
    look = ProcessFamilies(FakeRanks(), Asked(), fresh_for=0.0, clock=clock).look
    threads = {pid for pid, stat in look().processes.items() if stat.kernel_thread}
    if not threads:
        pytest.skip("no thread of the kernel is visible here")
    clock.now += AFRESH_SECONDS - 1
    assert threads & look().processes.keys()
    assert os.getpid() in asked[-1]
    assert not threads & asked[-1]
    clock.now += 1
    look()
    assert threads & asked[-1]


def test_looks_that_had_to_wait_for_a_core_are_not_made_rarer() -> None:
    """A machine that is busy is where new processes must be seen."""
    ranks, clock = FakeRanks(), Clock()

    def listed() -> list[Rank]:
        clock.now += 60  # somebody else has the cores
        return ranks()

    look = ProcessFamilies(listed, Procfs(), clock=clock, cpu_clock=lambda: 0.0).look
    with program(TREE) as one:
        assert not look().members
        ranks.add(one.pid, 0)
        clock.now += 5
        assert look().members


def test_a_process_that_lost_its_parent_stays_with_its_rank() -> None:
    ranks = FakeRanks()
    look = families(ranks).look
    with program(ORPHAN) as rank:
        ranks.add(rank.pid, 0)
        grandchild = int(rank.ask("start"))
        assert grandchild in look().rank_of
        assert rank.ask("end the one between") == "gone"
        found = look()
        try:
            assert found.processes[grandchild].parent != rank.pid
            assert grandchild in found.members["7", "train", "0"]
        finally:
            os.kill(grandchild, 9)


def test_a_rank_started_by_a_rank_is_its_own() -> None:
    ranks = FakeRanks()
    with program(TREE) as rank:
        child = int(rank.ask("child"))
        ranks.add(rank.pid, 0)
        ranks.add(child, 1)
        found = families(ranks).look()
        assert found.members["7", "train", "0"] == (rank.pid,)
        assert found.members["7", "train", "1"] == (child,)
        rank.ask("end")


def test_ranks_that_are_gone_are_forgotten() -> None:
    counter = RankCounter()
    counter.update("rank 0", 100, 50)
    counter.update("rank 1", 100, 50)
    counter.forget_unseen()
    counter.update("rank 1", 100, 60)
    counter.forget_unseen()
    assert counter.update("rank 0", 100, 10) == 10
    assert counter.update("rank 1", 100, 70) == 70


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_it_never_falls_and_never_exceeds_what_was_added(sums: list[int]) -> None:
    counter = RankCounter()
    totals = [counter.update("r", 1, value) for value in sums]
    assert totals == sorted(totals)
    assert totals[-1] >= max(sums)
