"""Tasks in uninterruptible sleep, by what they wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.host.procfs import TICKS_PER_SECOND, Procfs
from stagewatch.ranks import blocked_tasks
from stagewatch.ranks.blocked_tasks import CLASSES, BlockedTasksCollector, waits_for
from tests.ranks.fakes import FakeRanks, families

STAT = (
    "{pid} (py (x) thon) {state} {parent} " + "0 " * 15 + "1 0 {start} " + "0 " * 19 + "{delay} 0"
)


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        ("rpc_wait_bit_killable", "nfs"),
        ("request_wait_answer", "fuse"),
        ("ptlrpc_set_wait", "lustre"),
        ("folio_wait_bit_common", "page"),
        ("io_schedule", "block"),
        ("jbd2_log_wait_commit", "journal"),
        ("mem_cgroup_handle_over_high", "memory"),
        ("rwsem_down_write_slowpath", "lock"),
        ("os_acquire_mutex", "gpu"),
        ("nvme_wait_freeze", "other"),
        ("", "unknown"),
    ],
)
def test_wait_channels_are_classed(channel: str, expected: str) -> None:
    assert waits_for(channel) == expected
    assert expected in CLASSES


def task(proc: Path, pid: int, tid: int, state: str, channel: str = "0", **more: int) -> None:
    directory = proc / str(pid) / "task" / str(tid)
    directory.mkdir(parents=True)
    text = STAT.format(**({"pid": tid, "state": state, "parent": 1, "start": 9, "delay": 0} | more))
    (directory / "stat").write_text(text)
    (directory / "wchan").write_text(channel)
    if pid == tid:
        (proc / str(pid) / "stat").write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A rank with three threads and a child, and a process beside it."""
    task(tmp_path, 10, 10, "S", "futex_do_wait", delay=100)
    task(tmp_path, 10, 11, "D", "rpc_wait_bit_killable", delay=50)
    task(tmp_path, 10, 12, "D", "rpc_wait_bit_killable", delay=50)
    task(tmp_path, 20, 20, "D", "io_schedule", parent=10)
    task(tmp_path, 30, 30, "D", "io_schedule")
    (tmp_path / "sys" / "kernel").mkdir(parents=True)
    return tmp_path


def collect(proc: Path) -> blocked_tasks.Samples:
    ranks = FakeRanks()
    ranks.add(10, 0)
    return BlockedTasksCollector(families(ranks, proc), Procfs(proc)).collect()


def test_threads_of_a_rank_and_processes_are_counted(proc: Path) -> None:
    (proc / "sys" / "kernel" / "task_delayacct").write_text("1\n")
    out = collect(proc)
    assert out.value(blocked_tasks.BLOCKED, "block") == 2
    assert out.value(blocked_tasks.BLOCKED, "nfs") == 2
    assert out.value(blocked_tasks.BLOCKED, "fuse") == 0
    assert out.value(blocked_tasks.DELAY, "7", "train", "0") == 200 / TICKS_PER_SECOND
