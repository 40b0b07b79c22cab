"""/proc as a fixed tree, and that of this system."""

from __future__ import annotations

from pathlib import Path

from stagewatch.host.procfs import PAGE_SIZE, TICKS_PER_SECOND, Procfs
from tests.golden import FIXTURES

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
