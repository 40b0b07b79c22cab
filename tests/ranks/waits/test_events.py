"""Descriptors that are neither files nor pipes nor sockets."""

from __future__ import annotations

from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code


def test_an_eventfd_is_waited_for_with_who_shares_it(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        import ctypes
        event = ctypes.CDLL(None).eventfd(0, 0)
        say("worker", fork(sleep))
        say("trainer")
        os.read(event, 8)
        """)
    )
    trainer, worker = running["trainer"], running["worker"]
    (wait,) = settled(trainer, until=lambda look: look.of(trainer)).of(trainer)
    assert wait.targets == (worker,)
    assert wait.witness == f"reads an eventfd that it shares with pid {worker}"
