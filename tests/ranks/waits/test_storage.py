"""Processes that a file system keeps waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagewatch.ranks.waits.model import Kind, State
from tests.fakes.faultfs import FaultFs
from tests.fakes.stuck import get_stuck, getting_stuck
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code
from tests.ranks.waits.test_pipes import WRITERS
from tests.running import Python

Mounts = Callable[[str], FaultFs]

CALLS = {
    "read": ("read", "open(sys.argv[1], 'rb').read()"),
    "fsync": ("fsync", "f = open(sys.argv[1], 'ab'); os.fsync(f.fileno())"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_to_a_silent_mount_is_told_with_the_mount(
    program: Start, settled: Settled, faultfs: Mounts, call: str
) -> None:
    mount = faultfs("silent")
    (mount.mount / "file").write_bytes(bytes(4096))
    operation, text = CALLS[call]
    mount.fault("hang", operation)
    me = program(code(f"say('me')\n{text}"), mount.mount / "file")["me"]
    look = settled(me, until=lambda look: look.processes[me].state is State.STORAGE)
    (wait,) = look.of(me)
    assert (wait.kind, wait.targets) == (Kind.STORAGE, ())
    assert wait.witness.startswith(f"is in {call} of {mount.mount}/file, on {mount.mount} (fuse")


@pytest.mark.parametrize("how", ["mmap", "exec"])
def test_one_that_keeps_the_kernel_from_answering_costs_a_line(
    program: Start, python: Python, settled: Settled, faultfs: Mounts, how: str
) -> None:
    mount = faultfs("silent")
    stuck = getting_stuck(python, mount, how)
    get_stuck(stuck, mount)
    running = program(WRITERS)
    reader = running["reader"]
    look = settled(stuck.pid, reader, until=lambda look: look.of(reader))
    assert len(look.of(reader)[0].targets) == 2
    assert look.processes[stuck.pid].state in (State.STORAGE, State.UNKNOWN)
    assert look.processes[stuck.pid].state is State.STORAGE or look.processes[stuck.pid].lacking
