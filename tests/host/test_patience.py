"""Processes stuck in exec on a silent mount, of which nothing that waits may be read."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stagewatch.host.patience import MAX_WAITING_PER_USER, Patience
from stagewatch.host.procfs import Procfs
from tests.fakes.faultfs import FaultFs
from tests.fakes.stuck import get_stuck, getting_stuck
from tests.running import Python
from tests.waiting import wait_for

Mounts = Callable[[str], FaultFs]


class Silent:
    """Stands for reads that wait until the test ends."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.begun = 0

    def read(self) -> str:
        """Wait."""
        self.begun += 1
        self.event.wait()
        return "late"


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.event.set()


def test_an_answer_and_an_error_come_back() -> None:
    asked = Patience(lambda process: 0)
    assert [asked.ask("/proc/1", [number].pop) for number in range(100)] == [*range(100)]
    with pytest.raises(FileNotFoundError):
        asked.ask("/proc/1", lambda: Path("/nonexistent").stat())
    assert asked.silent() == frozenset()


def test_one_that_does_not_answer_is_left_alone_until_it_does(silent: Silent) -> None:
    asked = Patience(lambda process: 0)
    for _ in range(3):
        assert asked.ask("/proc/7", silent.read, 0.01) is None
    assert silent.begun == 1
    assert asked.silent() == {"/proc/7"}
    assert asked.ask("/proc/8", lambda: "answer", 60) == "answer"
    silent.event.set()
    wait_for(lambda: not asked.silent(), "it has answered")
    assert asked.ask("/proc/7", lambda: "answer", 60) == "answer"


def test_one_that_does_not_answer_keeps_no_other_from_being_read(silent: Silent) -> None:
    asked = Patience(lambda process: 0)
    reads = [(f"/proc/{number}", partial(str, number)) for number in range(5)]
    reads[2] = ("/proc/2", silent.read)
    for _ in range(2):
        assert asked.ask_each(reads) == ["0", "1", None, "3", "4"]
    assert silent.begun == 1
    assert asked.silent() == {"/proc/2"}
    silent.event.set()
    wait_for(lambda: asked.ask_each(reads)[2] == "late", "it answers again")


def test_a_crowd_of_one_user_costs_nobody_else(silent: Silent) -> None:
    asked = Patience(lambda process: 1000 if process.startswith("/proc/1") else 1001)
    for number in range(100):
        assert asked.ask(f"/proc/1{number}", silent.read, 0.01) is None
    assert silent.begun == MAX_WAITING_PER_USER
    assert asked.ask("/proc/2", lambda: "answer", 60) == "answer"


def test_a_process_stuck_in_exec_is_asked_once_and_still_runs(
    python: Python, faultfs: Mounts, caplog: pytest.LogCaptureFixture
) -> None:
    proc = Procfs()
    mount = faultfs("silent")
    stuck = getting_stuck(python, mount, "exec")
    before = proc.stat(stuck.pid)
    get_stuck(stuck, mount)
    with caplog.at_level(logging.WARNING):
        stats = [proc.stat(stuck.pid) for _ in range(3)]
        proc.wait_channel(stuck.pid, stuck.pid)
        proc.network_namespace(stuck.pid)
    if stats[0] is not None:
        pytest.skip("this kernel lets nobody wait for a process that is stuck in exec")
    assert stats == [None] * 3
    assert stuck.pid in proc.silent()
    assert len(caplog.records) == 1
    assert proc.is_running(stuck.pid, before.start_ticks)
    assert proc.uid(stuck.pid) == os.geteuid()
    mount.ok()
    wait_for(lambda: stuck.pid not in proc.silent(), "the kernel answers")
    after = proc.stat(stuck.pid)
    assert after.start_ticks == before.start_ticks
