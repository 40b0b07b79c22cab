"""A memory hog in a cgroup until the OOM killer strikes: who was it?"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.gpu.xids import XidLedger
from stagewatch.kernel_log import collector as kmsg
from stagewatch.kernel_log.collector import KmsgCollector
from stagewatch.kernel_log.reader import Kmsg
from stagewatch.ranks import processes
from stagewatch.ranks.processes import ProcessesCollector
from stagewatch_lab.rl import memory_limit
from stagewatch_lab.rl.memory_limit import MemoryLimit
from tests.ranks.fakes import FakeRanks, families, program
from tests.waiting import wait_for

LIMIT = 128 << 20
HOG = """
import os, sys
def grow():
    held = []
    while True:
        held.append(bytearray(os.urandom(1) * (4 << 20)))
for line in sys.stdin:
    if line.strip() == "grow in a child":
        pid = os.fork()
        if pid == 0:
            sys.stdin.readline()  # until the parent has told who its child is
            grow()
        print(pid)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        continue
    print("done")
"""


def last_sequence() -> int:
    log = Kmsg()
    try:
        for _ in log.read():
            pass
    finally:
        log.close()
    return log.last or 0


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs to read /dev/kmsg")
def test_a_child_that_the_oom_killer_hits_is_named_by_its_rank() -> None:
    if reason := memory_limit.missing():
        pytest.skip(f"a memory cgroup: {reason}")
    ranks = FakeRanks()
    look = families(ranks)
    of_node = ProcessesCollector(look, Path("/proc"))
    log = Kmsg()
    of_log = KmsgCollector(log, XidLedger(), ranks=look.rank_of_process)
    log.last = last_sequence()
    with (
        closing(MemoryLimit(f"stagewatch-test-{os.getpid()}", LIMIT)) as group,
        program(HOG, prefix=group.wrapper) as bystander,
        program(HOG, prefix=group.wrapper) as hog,
    ):
        for number, rank in enumerate((bystander, hog)):
            rank.ask("start")
            ranks.add(rank.pid, number)
        before = of_node.collect()
        assert before.value(processes.RANK_MEMORY_LIMIT, "7", "train", "1") == LIMIT
        assert 0 < (before.value(processes.RANK_MEMORY, "7", "train", "1") or 0) < LIMIT
        assert before.value(processes.RANK_OOM_KILLS, "7", "train", "1") == 0
        hog.ask("grow in a child")
        of_log.collect()
        hog.say("go")
        assert hog.hear() == "-9"

        def named() -> bool:
            found = of_log.collect()
            return found.value(kmsg.OOM_KILLS, "cgroup", "7", "train", "1") == 1

        wait_for(named, "rank 1 in the kernel's log")
        assert of_log.collect().value(kmsg.OOM_KILLS, "cgroup", "7", "train", "0") is None
        after = of_node.collect()
        assert after.value(processes.RANK_OOM_KILLS, "7", "train", "1") == 1
        of_log.close()
