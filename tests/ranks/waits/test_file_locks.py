"""Locks of files."""

from __future__ import annotations

import pytest

from stagewatch.ranks.waits.model import Kind, State
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code

LOCKS = {"flock": "fcntl.flock(file, fcntl.LOCK_EX)", "fcntl": "fcntl.lockf(file, fcntl.LOCK_EX)"}

PROGRAM = code("""
    import fcntl, tempfile
    path = tempfile.mkdtemp() + "/the.lock"
    def take():
        file = open(path, "w")
        exec(sys.argv[1])
        return file
    def hold():
        file = take()
        say("locked", os.getpid())
        if "heir" in sys.argv:  # the lock stays with the file that the child has open
            say("holder", fork(sleep))
        else:
            say("holder")
            sleep()
    def wait(name):
        say(name)
        take()
    fork(hold)
    time.sleep(0.5)
    fork(lambda: wait("second"))
    wait("waiter")
""")


@pytest.mark.parametrize("lock", LOCKS)
def test_who_waits_for_a_lock_waits_for_its_holder_alone(
    program: Start, settled: Settled, lock: str
) -> None:
    running = program(PROGRAM, LOCKS[lock])
    waiter, second, holder = (running[name] for name in ("waiter", "second", "holder"))
    look = settled(
        *(waiter, second),
        until=lambda look: all(
            any(wait.kind is Kind.LOCK for wait in look.of(pid)) for pid in (waiter, second)
        ),
        states={holder: State.SLEEPING},
    )
    for pid in (waiter, second):
        (wait,) = look.of(pid)
        assert wait.targets == (holder,)
        assert wait.witness.endswith(f"/the.lock that pid {holder} holds")


def test_a_lock_that_a_process_has_inherited_is_found(program: Start, settled: Settled) -> None:
    running = program(PROGRAM, LOCKS["flock"], "heir")
    waiter, holder = running["waiter"], running["holder"]
    look = settled(waiter, until=lambda look: any(wait.targets for wait in look.of(waiter)))
    assert [wait.targets for wait in look.of(waiter)] == [(holder,)]
