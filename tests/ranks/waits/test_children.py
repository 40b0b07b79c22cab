"""Parents that wait for children."""

from __future__ import annotations

import pytest

from stagewatch.ranks.waits.model import Kind, State
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code

CALLS = {
    "wait4": "os.waitpid(children[0], 0)",
    "waitid of any": "os.waitid(os.P_ALL, 0, os.WEXITED)",
    "poll of a pidfd": """
import select
poll = select.poll()
poll.register(os.pidfd_open(children[0]), select.POLLIN)
poll.poll()
""",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_parent_waits_for_its_child(program: Start, settled: Settled, call: str) -> None:
    running = program(
        code("""
        children = [fork(sleep), fork(sleep)]
        say("first", children[0])
        say("second", children[1])
        say("parent")
        exec(sys.argv[1])
        """),
        CALLS[call],
    )
    parent, first, second = (running[name] for name in ("parent", "first", "second"))
    look = settled(
        *(parent, first, second),
        until=lambda look: any(wait.targets for wait in look.of(parent)),
        states={first: State.SLEEPING},
    )
    (wait,) = look.of(parent)
    assert wait.kind is Kind.CHILD
    assert set(wait.targets) == ({first, second} if "any" in call else {first})
    assert wait.witness.startswith("waits for the end of pid")


def test_a_child_in_a_pid_namespace_of_its_own_is_found(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        libc = __import__("ctypes").CDLL(None)
        if libc.unshare(0x20000000) != 0:  # CLONE_NEWPID
            say("refused", 1)
            sleep()
        outer = os.getpid()
        def first():
            child = os.fork()
            if child == 0:
                sleep()
            os.waitpid(child, 0)
        say("child", fork(first))
        sleep()
        """)
    )
    child = running["child"]
    look = settled(child, until=lambda look: any(wait.targets for wait in look.of(child)))
    (wait,) = look.of(child)
    (grandchild,) = wait.targets
    assert look.processes[grandchild].parent == child
    assert look.processes[grandchild].state is State.SLEEPING
