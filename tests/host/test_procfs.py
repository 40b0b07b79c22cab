"""/proc as a fixed tree, and that of this system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch.host.procfs import PAGE_SIZE, TICKS_PER_SECOND, Procfs
from tests.golden import FIXTURES
from tests.records import SECOND_USER

FIXED = Procfs(FIXTURES / "proc")


def test_a_process_is_read_with_the_time_of_all_its_threads() -> None:
    process, main = FIXED.stat(4242), FIXED.stat(4242, 4242)
    assert (process.command, process.state, process.parent) == ("python3", "R", 4100)
    assert process.user_seconds == 1234567 / TICKS_PER_SECOND
    assert main.user_seconds == 1200000 / TICKS_PER_SECOND
    assert (process.threads, process.start_ticks) == (37, 70001)
    assert process.resident_bytes == 500000 * PAGE_SIZE


def test_a_command_that_looks_like_the_rest_of_the_line_does_not_confuse() -> None:
    found = FIXED.stat(4300)
    assert (found.command, found.state, found.parent, found.session) == (
        "a) R 1 (python\n3",
        "D",
        4290,
        4290,
    )


def test_what_is_not_there_is_none() -> None:
    assert FIXED.stat(1) is None
    assert FIXED.scheduling(1, 1) is None
    assert FIXED.uid(1) is None
    assert FIXED.wait_channel(1, 1) == ""
    assert Procfs(Path("/nonexistent")).pids() == []
    assert Procfs(Path("/nonexistent")).pid_namespace() == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be other users")
def test_another_user_sees_whose_a_process_is_that_is_not_dumpable() -> None:
    drops = f"import ctypes, os; os.setuid({SECOND_USER}); ctypes.CDLL(None).prctl(4, 0)"
    asks = f"""
        import os
        from stagewatch.host.procfs import Procfs
        os.setuid({SECOND_USER - 1})
        print(Procfs().uid(int(input())))
        """
    pipe = subprocess.PIPE
    hidden = [sys.executable, "-c", f"{drops}; print(flush=True); input()"]
    with subprocess.Popen(hidden, stdin=pipe, stdout=pipe) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        asker = [sys.executable, "-c", "\n".join(line.strip() for line in asks.splitlines())]
        told = subprocess.run(asker, input=f"{process.pid}\n".encode(), stdout=pipe, check=True)
        assert (Path("/proc") / str(process.pid) / "stat").stat().st_uid == 0, "it is dumpable"
    assert int(told.stdout) == SECOND_USER
