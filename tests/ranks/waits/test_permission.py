"""What somebody learns who may not look, and what is told of it."""

from __future__ import annotations

import json
import os

import pytest

from stagewatch.ranks.waits.model import Kind, State, Waiting, from_json
from tests.ranks.waits.chain import ends
from tests.ranks.waits.programs import Start, code
from tests.ranks.waits.test_pipes import WRITERS
from tests.running import Python

NOBODY = 65534

LOOK = f"""
import json, os, sys
from stagewatch.ranks.waits.child import answer
os.setgroups([])
os.setresgid(*[{NOBODY}] * 3)
os.setresuid(*[{NOBODY}] * 3)
targets = [[int(pid), 0, 0] for pid in sys.argv[1:]]
question = {{"targets": targets, "connections": [], "connected": [], "apart": 0.3}}
print("told", json.dumps(answer(question)))
"""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of others")


def look_as_nobody(python: Python, *pids: int) -> Waiting:
    return from_json(json.loads(python(LOOK, *pids).finish().partition("told ")[2]))


def test_of_a_process_of_another_user_it_is_told_what_may_not_be_seen(
    program: Start, python: Python
) -> None:
    running = program(WRITERS)
    reader = running["reader"]
    look = look_as_nobody(python, reader)
    process = look.processes[reader]
    assert (process.state, look.of(reader)) == (State.UNKNOWN, ())
    for what in ("system calls", "environment"):
        assert any(what in line for line in process.lacking), process.lacking
    assert process.command.startswith("python")
    assert ends(look, [reader]).unseen == (reader,)


def test_a_holder_of_another_user_is_not_taken_for_nobody(program: Start, python: Python) -> None:
    running = program(
        code(f"""
        r, w = os.pipe()
        def write():
            os.close(r)
            sleep()
        fork(write)
        os.close(w)
        import ctypes
        os.setgroups([])
        os.setresgid(*[{NOBODY}] * 3)
        os.setresuid(*[{NOBODY}] * 3)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: others of this user may look
        say("reader")
        os.read(r, 1)
        """)
    )
    reader = running["reader"]
    look = look_as_nobody(python, reader)
    (wait,) = look.of(reader)
    assert (wait.kind, wait.targets, wait.unseen) == (Kind.PIPE, (), True)
    assert any("do not let their descriptors be read" in line for line in look.left_out)
    found = ends(look, [reader])
    assert (found.pids, found.unseen) == ((), (reader,))
