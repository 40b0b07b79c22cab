"""slurmd is killed and started again; a process that only looks like it is never taken for it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from stagewatch.core.processes import Children
from stagewatch.faults.kinds.slurm import find_daemon
from tests.faults.injecting import Injector
from tests.waiting import wait_for

CONFIGURATION = "/etc/slurm/of-the-test.conf"
FLAGS = ("-N", "node7", "-f", CONFIGURATION)

Start = Callable[..., int]


@pytest.fixture
def slurmd() -> Iterator[tuple[str, ...]]:
    """A command line: a program called slurmd that waits for ever, with the daemon's flags."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        program = shutil.copy(shutil.which("bash") or "/bin/bash", f"{directory}/slurmd")
        os.mkfifo(f"{directory}/never")
        yield (program, "-c", f"read line < {directory}/never", *FLAGS)


@pytest.fixture
def start(children: Children) -> Start:
    """Starts a program, and waits until it calls itself slurmd; returns its pid."""

    def start(*argv: str) -> int:
        pid = children.start(argv).pid
        line = Path(f"/proc/{pid}/cmdline")
        wait_for(lambda: line.read_bytes().partition(b"\0")[0].endswith(b"slurmd"), "the program")
        return pid

    return start


def test_a_nodes_slurmd_is_found(slurmd: tuple[str, ...], start: Start) -> None:
    pid = start(*slurmd)
    daemon = find_daemon("node7", CONFIGURATION)
    assert daemon is not None and daemon.pid == pid
    assert find_daemon("node8", CONFIGURATION) is None
    assert find_daemon("node7", "/etc/slurm/of-another.conf") is None


def test_another_program_that_calls_itself_slurmd_is_not(
    slurmd: tuple[str, ...], start: Start
) -> None:
    _, *arguments = slurmd
    start("bash", "-c", 'exec -a slurmd bash "$@"', "bash", *arguments)
    assert find_daemon("node7", CONFIGURATION) is None


def test_the_slurmd_of_another_user_is_not(slurmd: tuple[str, ...], start: Start) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, and setpriv (Debian package util-linux) to be another user")
    pid = start("setpriv", "--reuid=65534", "--clear-groups", "--", *slurmd)
    assert Path(f"/proc/{pid}/exe").readlink() == Path(slurmd[0])
    assert find_daemon("node7", CONFIGURATION) is None


def test_a_killed_slurmd_is_started_again_as_it_was(
    slurmd: tuple[str, ...], start: Start, injector: Injector
) -> None:
    before = start(*slurmd)
    script = injector.hold("slurm-node-kill", "--target=node7", SLURM_CONF=CONFIGURATION)
    assert find_daemon("node7", CONFIGURATION) is None
    script.process.send_signal(signal.SIGINT)
    script.finish(130)
    injector.gone()
    after = wait_for(lambda: find_daemon("node7", CONFIGURATION), "slurmd to be started again")
    try:
        assert after.pid != before
        raw = Path(f"/proc/{after.pid}/cmdline").read_bytes()
        assert raw == b"".join(argument.encode() + b"\0" for argument in slurmd)
    finally:
        after.send(signal.SIGKILL)
