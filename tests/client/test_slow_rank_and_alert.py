"""From four real ranks, one of them slow, to the alert's text: client, agent, rules, Prometheus."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.client.slow_job import NODE, running, told, watched
from tests.hangbench.throttles import CGROUPS, missing
from tests.waiting import wait_for

GROUP = CGROUPS / "stagewatch-test-slow-540"

SLEEPS = """
def prepare(number): pass
def work(number):
    if number == 2: time.sleep(0.1)
"""
LIMITED = f"""
import os
from pathlib import Path
def prepare(number):
    if number == 2:
        Path({str(GROUP / "cgroup.procs")!r}).write_text(str(os.getpid()))
def work(number):
    end = time.thread_time() + 0.05
    while number == 2 and time.thread_time() < end: pass
"""
READS_PAGES = """
import mmap, os
def prepare(number):
    global file
    file = open({data!r}, "rb")
def work(number):
    end = time.monotonic() + 0.1
    while number == 2 and time.monotonic() < end:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            memory.madvise(mmap.MADV_RANDOM)
            sum(memory[:: 16 * mmap.PAGESIZE])
"""


def test_the_alert_names_the_slow_rank_and_no_other(tmp_path: Path) -> None:
    with watched(tmp_path, {"stages"}) as (stack, prometheus), running(stack, SLEEPS) as job:
        (text,) = told(job, prometheus, lambda text: "works 1." in text)
        assert text.startswith(f"Job slow-540 (train): rank 2 on {NODE} works 1.")
        waited = "sum by (rank) (rl_rank_waited_seconds_total)"
        (least, *_) = sorted(prometheus.query(waited), key=lambda series: series.value)
        assert least.labels["rank"] == "2"


def test_a_limit_of_its_cgroup_is_told_beside_the_rank(tmp_path: Path) -> None:
    if reason := missing(lambda *actions: "quota" in actions):
        pytest.skip(reason)
    GROUP.mkdir(exist_ok=True)
    try:
        (GROUP / "cpu.cfs_period_us").write_text("100000")
        (GROUP / "cpu.cfs_quota_us").write_text("20000")
        with (
            watched(tmp_path, {"stages", "processes"}) as (stack, prometheus),
            running(stack, LIMITED) as job,
        ):
            told(job, prometheus, lambda text: "rank 2" in text and "A CPU limit stops it" in text)
    finally:
        wait_for(lambda: not (GROUP / "cgroup.procs").read_text(), "the rank to end")
        with contextlib.suppress(OSError):
            GROUP.rmdir()


def test_pages_that_it_waits_for_are_told_beside_the_rank(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(64 << 20))
    subprocess.run(["sync", "--data", str(data)], check=True)
    with (
        watched(tmp_path, {"stages", "ranks"}) as (stack, prometheus),
        running(stack, READS_PAGES.format(data=str(data))) as job,
    ):
        told(job, prometheus, lambda text: "rank 2" in text and "pages a second from" in text)
