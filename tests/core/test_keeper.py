"""The process that keeps the privileges: what it can be asked for, and by whom."""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections.abc import Iterator
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
[own] = open(f"/proc/self/task/{os.getpid()}/children").read().split()
print("keeper", own, process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    )
    _, *pids = script.finish(-9).split()
    wait_for(lambda: not any(Path("/proc", pid).exists() for pid in pids), "their end")


SERVICE = """
import json, os, socket, sys
from stagewatch.core.children.start import Child, bare_python
from stagewatch.core.errors import SourceError
from stagewatch.core.privileges.keeper import Keeper, encode_children

children = {"reader": Child("stagewatch.host.guarded_child", ("/proc",))}
directory, own = sys.argv[1], os.geteuid()
path = directory + "/socket"

def listener(user):
    held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.seteuid(user)
    held.bind(path)
    os.chmod(path, 0o777)
    held.listen()
    os.seteuid(own)
    return held

def keeper(held):
    if os.fork() == 0:
        os.dup2(held.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ["LISTEN_PID"] = str(os.getpid())
        command = bare_python("stagewatch.core.privileges.keeper_child", encode_children(children))
        os.execv(command[0], command)
"""
"""One behind a socket that others hold, as its unit is."""


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_behind_a_socket_it_answers_its_own_user_alone(python: Python, open_to_all: Path) -> None:
    asks = """
        keeper(listener(own))
        os.seteuid(60001)
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stranger.connect(path)
        print("stranger", stranger.recv(64))
        os.seteuid(own)
        print("own", len(Keeper(children, path).read_clock()))
    """
    lines = python(SERVICE + textwrap.dedent(asks), open_to_all).finish().splitlines()
    assert lines == ["stranger b''", "own 4"]


def test_a_socket_of_another_user_is_not_believed(python: Python, open_to_all: Path) -> None:
    asks = """
        held = listener(60001)
        try:
            Keeper(children, path).read_clock()
        except SourceError as error:
            print(error)
    """
    said = python(SERVICE + textwrap.dedent(asks), open_to_all).finish()
    assert "belongs to user 60001" in said
