"""Child processes that cannot outlive their parent."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

from stagewatch.core.processes import Children
from tests.running import Python
from tests.waiting import wait_for

PARENT = """
import sys, time
from pathlib import Path
from stagewatch.core.processes import Children
children = Children()
for _ in range(3):
    print("child", children.start(["sleep", "600"]).pid, flush=True)
print("ready", flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_children_end_when_their_parent_is_killed(python: Python) -> None:
    parent = python.ready(PARENT)
    pids = [int(line.split()[1]) for line in parent.output().splitlines() if "child" in line]
    assert all(map(alive, pids))
    parent.kill()
    wait_for(lambda: not any(map(alive, pids)), "the end of all children")


def test_children_are_asked_to_end_and_forced_if_they_will_not(tmp_path: Path) -> None:
    with Children() as children:
        polite = children.start(["sleep", "600"])
        stubborn = children.start(
            ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"],
            log=tmp_path / "log",
        )
        ended = children.start(["true"])
        wait_for(lambda: "ready" in (tmp_path / "log").read_text(), "a trap")
        ended.wait()
        children.stop(patience=0.2)
        assert polite.returncode == -signal.SIGTERM
        assert stubborn.returncode == -signal.SIGKILL
        assert ended.returncode == 0
