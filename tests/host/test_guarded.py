"""Files of `/proc` that do not answer, by processes that are really stuck on a silent mount."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.guarded_child import Reader
from stagewatch.host.procfs import Procfs
from tests.fakes.faultfs import FaultFs
from tests.fakes.stuck import get_stuck, getting_stuck
from tests.running import Python
from tests.waiting import wait_for

Mounts = Callable[[str], FaultFs]


@pytest.fixture
def files() -> Iterator[GuardedFiles]:
    with closing(GuardedFiles()) as files:
        yield files


@pytest.mark.parametrize(
    ("how", "file"), [("mmap", "environ"), ("mmap", "cmdline"), ("exec", "io")]
)
def test_a_process_that_is_stuck_is_told_once_and_not_read_again(
    how: str,
    file: str,
    python: Python,
    faultfs: Mounts,
    files: GuardedFiles,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """See access_remote_vm in mm/memory.c and do_io_accounting in fs/proc/base.c."""
    mount = faultfs("silent")
    script = getting_stuck(python, mount, how)
    assert files.read(file, [script.pid])[script.pid]
    get_stuck(script, mount)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert files.read(file, [script.pid, os.getpid()]).keys() == {os.getpid()}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"/proc/{script.pid}/{file} does not answer")
    assert files.blocked(file) == {script.pid}
    mount.ok()
    wait_for(
        lambda: files.read(file, [os.getpid()]) and not files.blocked(file), "what waited came back"
    )


def test_many_that_are_stuck_hold_up_nobody_else(
    python: Python, faultfs: Mounts, files: GuardedFiles
) -> None:
    """Each on a mount of its own, as a job on a node is on one."""
    stuck = []
    for number in range(4):
        mount = faultfs(f"silent-{number}")
        script = getting_stuck(python, mount)
        get_stuck(script, mount)
        stuck.append(script.pid)
    read = files.read("environ", [*stuck, os.getpid()])
    assert read.keys() == {os.getpid()}
    assert files.blocked("environ") == set(stuck)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "mem"},
        {"file": "../../etc/shadow"},
        {"pids": ["1/../.."]},
        {"pids": [True]},
        {"pids": [-1]},
        {"prefixes": [1]},
        {"root": "/"},
        {"program": "/bin/sh"},
    ],
)
def test_what_is_not_on_the_readers_list_is_refused(change: dict[str, object]) -> None:
    """It may read every file, and so takes no name of one from anybody."""
    question = {"file": "environ", "pids": [os.getpid()], "prefixes": []}
    assert Reader("/proc").answer(question)["read"]
    assert Reader("/proc").answer(question | change).keys() == {"refused"}
    assert Reader("/proc").answer([]).keys() == {"refused"}  # type: ignore[arg-type]


def test_what_a_task_sleeps_in_is_told_by_the_reader_where_the_agent_may_not_look(
    python: Python, files: GuardedFiles
) -> None:
    script = python.ready("print('ready'); import time; time.sleep(600)")
    pid = script.pid
    asked = Procfs(Path("/proc"), files)
    wait_for(
        lambda: asked.wait_channel(pid, pid) == Procfs().wait_channel(pid, pid) != "", "it sleeps"
    )
    assert asked.wait_channels([(pid, pid), (1 << 22, 1 << 22)])[1 << 22] == ""


def test_one_user_cannot_make_an_answer_too_long(python: Python, files: GuardedFiles) -> None:
    """A character that JSON escapes takes six; see MAX_LINE of the supervisor."""
    script = python.ready("print('ready'); import time; time.sleep(600)", RANK="\x01" * 60_000)
    many = [script.pid] * 400
    assert files.read("environ", many, ["RANK="]).keys() == {script.pid}
