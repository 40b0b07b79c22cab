"""Semaphores in shared memory, private locks and threads that are joined."""

from __future__ import annotations

import ctypes
import os

import pytest

from stagewatch.ranks.waits.model import Kind, Mode, State
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import code
from tests.ranks.waits.test_pipes import Start


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


def test_a_thread_that_is_joined_is_named(program: Start, settled: Settled) -> None:
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        pytest.skip("pthread_t is taken for 64 bits")
    running = program(
        code("""
        import ctypes
        pthread = ctypes.CDLL(None)
        start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: sleep())
        thread = ctypes.c_ulong()
        pthread.pthread_create(ctypes.byref(thread), None, start, None)
        say("main")
        pthread.pthread_join(thread, None)
        """)
    )
    main = running["main"]
    look = settled(main, until=lambda look: len(look.of(main)) == 2, states={main: State.SLEEPING})
    own, sleeping = look.of(main)
    assert own.witness == f"waits for the end of its thread {sleeping.thread}"


def test_threads_that_wait_alike_are_told_once(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        lock = threading.Lock()
        lock.acquire()
        for _ in range(20):
            threading.Thread(target=lock.acquire).start()
        say("main")
        sleep()
        """)
    )
    main = running["main"]
    look = settled(main, until=lambda look: [wait.alike for wait in look.of(main)] == [1, 20])
    assert [wait.alike for wait in look.of(main)] == [1, 20]
    assert look.processes[main].threads == 21
    assert os.getpid() not in look.processes
