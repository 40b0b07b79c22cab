"""Processes that do their worst cost a line, and nothing else."""

from __future__ import annotations

import os
import resource

import pytest

from stagewatch.ranks.waits.holders import MAX_DESCRIPTORS
from stagewatch.ranks.waits.model import State, Waiting
from tests.ranks.waits.chain import ends
from tests.ranks.waits.conftest import Looking, Settled
from tests.ranks.waits.programs import Start, code
from tests.ranks.waits.test_pipes import WRITERS

DESCRIPTORS = min(100_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100)


def test_a_hundred_thousand_descriptors(program: Start, settled: Settled) -> None:
    if DESCRIPTORS <= MAX_DESCRIPTORS:
        pytest.skip("the limit of descriptors is lower")
    greedy = program(
        code(f"""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS + 100},) * 2)
        r, w = os.pipe()
        for _ in range({DESCRIPTORS}):
            os.dup(r)
        say("me")
        os.read(r, 1)
        """)
    )["me"]
    running = program(WRITERS)
    reader = running["reader"]

    def seen(look: Waiting) -> bool:
        return bool(look.of(reader) and look.of(greedy))

    look = settled(greedy, reader, until=seen)
    assert len(look.of(reader)[0].targets) == 2
    assert look.processes[greedy].lacking == (
        f"its descriptors beyond the first {MAX_DESCRIPTORS:,}",
    )


def test_a_name_that_lies_stays_on_its_line(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        import ctypes
        name = b'x) R\\n"\\x1b['
        ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
        import tempfile
        path = tempfile.mkdtemp() + "/a\\nb\\x1b[31m.lock"
        import fcntl
        file = open(path, "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        def wait():
            other = open(path, "w")
            say("waiter")
            fcntl.flock(other, fcntl.LOCK_EX)
        fork(wait)
        say("holder")
        sleep()
        """)
    )
    waiter, holder = running["waiter"], running["holder"]
    look = settled(waiter, until=lambda look: any(wait.targets for wait in look.of(waiter)))
    assert look.processes[waiter].command.isprintable()
    assert look.of(waiter)[0].witness.isprintable()
    assert ends(look, [waiter]).pids == (holder,)


def test_a_child_that_is_killed_costs_a_line(waits: Looking) -> None:
    waits.look([])
    child = waits._child.pid
    assert child is not None
    os.kill(child, 9)
    look = waits.look([os.getpid()])
    if look.processes[os.getpid()].state is State.UNKNOWN:
        assert "the reader of waits" in look.left_out[0]
    waits.rest()
