"""/proc as a fixed tree, and that of this system."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.host.procfs import PAGE_SIZE, TICKS_PER_SECOND, Procfs
from tests.golden import FIXTURES

FIXED = Procfs(FIXTURES / "proc")


def test_a_process_is_read_with_the_time_of_all_its_threads() -> None:
    process, main = FIXED.stat(4242), FIXED.stat(4242, 4242)
    assert process is not None
    assert main is not None
    assert (process.command, process.state, process.parent) == ("python3", "R", 4100)
    assert process.user_seconds == 1234567 / TICKS_PER_SECOND
    assert main.user_seconds == 1200000 / TICKS_PER_SECOND
    assert (process.threads, process.start_ticks) == (37, 70001)
    assert process.resident_bytes == 500000 * PAGE_SIZE


def test_a_command_that_looks_like_the_rest_of_the_line_does_not_confuse() -> None:
    found = FIXED.stat(4300)
    assert found is not None
    assert (found.command, found.state, found.parent, found.session) == (
        "a) R 1 (python\n3",
        "D",
        4290,
        4290,
    )


def test_run_queue_time_and_swap_are_unknown_on_a_kernel_without_them() -> None:
    with_it, without = FIXED.scheduling(4242, 4242), FIXED.scheduling(4300, 4300)
    assert with_it is not None
    assert without is not None
    assert (with_it.queue_seconds, with_it.voluntary, with_it.involuntary) == (5.6, 12, 98765)
    assert (without.queue_seconds, without.voluntary, without.involuntary) == (None, 5, 6)
    assert (with_it.swapped_bytes, without.swapped_bytes) == (2 << 20, None)


def test_what_is_not_there_is_none() -> None:
    assert FIXED.stat(1) is None
    assert FIXED.scheduling(1, 1) is None
    assert FIXED.uid(1) is None
    assert FIXED.wait_channel(1, 1) == ""
    assert Procfs(Path("/nonexistent")).pids() == []
    assert Procfs(Path("/nonexistent")).pid_namespace() == 0


@pytest.mark.parametrize("stat", [b"", b"1", b"1 (x) R", b"1 (x) R a b c", b"\xff" * 100])
def test_a_stat_that_is_no_stat_is_none(stat: bytes, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stat").write_bytes(stat)
    assert Procfs(tmp_path).stat(1) is None


def test_a_wait_channel_of_zero_is_none() -> None:
    assert FIXED.wait_channel(4242, 4242) == ""
    assert FIXED.wait_channel(4243, 4243) == "futex_do_wait"
