"""Semaphores in shared memory, private locks and threads that are joined."""

from __future__ import annotations

from stagewatch.ranks.waits.model import Kind, Mode, State
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code


def test_a_semaphore_is_waited_for_with_all_who_share_it(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        import multiprocessing
        lock = multiprocessing.get_context("fork").Lock()
        def hold():
            lock.acquire()
            say("holder")
            sleep()
        def wait():
            say("other")
            lock.acquire()
        fork(hold)
        time.sleep(0.5)
        fork(wait)
        say("waiter")
        lock.acquire()
        """)
    )
    waiter, other, holder = running["waiter"], running["other"], running["holder"]
    look = settled(
        waiter,
        until=lambda look: look.of(waiter) and look.of(other),
        states={holder: State.SLEEPING},
    )
    (wait,) = look.of(waiter)
    assert (wait.kind, wait.call, wait.mode) == (Kind.FUTEX, "futex", Mode.ANY)
    assert set(wait.targets) == {holder, other}


def test_a_private_lock_leads_to_the_other_threads(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        r, w = os.pipe()
        def write():
            os.close(r)
            sleep()
        say("writer", fork(write))
        os.close(w)
        work = threading.Thread(target=os.read, args=(r, 1))
        work.start()
        say("main")
        work.join()
        """)
    )
    main, writer = running["main"], running["writer"]
    look = settled(main, until=lambda look: len(look.of(main)) == 2, states={main: State.WAITING})
    own, thread = look.of(main)
    assert (own.kind, own.thread, own.targets) == (Kind.OWN, main, ())
    assert (thread.kind, thread.targets) == (Kind.PIPE, (writer,))
