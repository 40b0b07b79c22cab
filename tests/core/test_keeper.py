"""The process that keeps the privileges: what it can be asked for, and by whom."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from tests.running import Python
from tests.waiting import wait_for

KEEPER = """
import os, sys
from stagewatch.core.children.start import Child
from stagewatch.core.errors import SourceError
from stagewatch.core.privileges import capabilities
from stagewatch.core.privileges.keeper import Keeper

reader = Child("stagewatch.host.guarded_child", ("/proc",))
keeper = Keeper({"reader": reader})
assert not capabilities.held()
"""
"""Of a process of root's, which has it take over what there is."""


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: who else has privileges to keep?")


def test_what_is_not_on_its_list_is_refused(python: Python) -> None:
    asks = """
        for question in (
            "start", "start other", "start /bin/sh", "start reader /", "start reader", "run reader",
            "reap 1", "reap -1", "reap reader", f"reap {os.getppid()}", "signal 1 9",
            "open", "open /etc/shadow", "open the kernel log /etc/shadow", "x" * 1000, "\\0",
        ):
            try:
                print(question[:20], keeper.ask(question))
            except SourceError as error:
                print("refused")
        try:
            print(keeper.start(Child("stagewatch.host.guarded_child", ("/",))))
        except KeyError:
            print("refused")
        process = keeper.start(reader)
        process.stdin.write(b'{"file": "io", "pids": [%d], "prefixes": []}\\n' % os.getpid())
        print("read" if b"rchar" in process.stdout.readline() else "nothing")
        process.terminate()
        print(process.wait(60))
    """
    lines = python(KEEPER + textwrap.dedent(asks)).finish().splitlines()
    assert lines == ["refused"] * 17 + ["read", "-15"]


def test_it_ends_with_who_started_it_and_takes_its_children_along(python: Python) -> None:
    script = python(
        KEEPER
        + """
process = keeper.start(reader)
print("keeper", keeper.pid, process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    )
    _, *pids = script.finish(-9).split()
    wait_for(lambda: not any(Path("/proc", pid).exists() for pid in pids), "their end")
