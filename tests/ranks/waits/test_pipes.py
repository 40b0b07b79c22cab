"""Pipes of one and of several writers."""

from __future__ import annotations

from stagewatch.ranks.waits.model import Kind, Mode, State
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code

WRITERS = code("""
    r, w = os.pipe()
    for name in "first", "second":
        def write():
            os.close(r)
            sleep()
        say(name, fork(write))
    os.close(w)
    say("reader")
    os.read(r, 1)
""")


def test_a_reader_waits_for_any_of_those_who_may_write(program: Start, settled: Settled) -> None:
    running = program(WRITERS)
    reader, writers = running["reader"], {running["first"], running["second"]}
    asleep = dict.fromkeys(writers, State.SLEEPING)
    look = settled(reader, until=lambda look: look.of(reader), states=asleep)
    (wait,) = look.of(reader)
    assert (wait.kind, wait.call, wait.mode) == (Kind.PIPE, "read", Mode.ANY)
    assert set(wait.targets) == writers
    assert wait.seconds_at_least > 0
    low, high = sorted(writers)
    assert wait.witness == f"reads a pipe that pids {low} and {high} write"


def test_a_writer_waits_for_those_who_may_read(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        r, w = os.pipe()
        def read():
            os.close(w)
            sleep()
        say("reader", fork(read))
        os.close(r)
        say("writer")
        while True:
            os.write(w, bytes(65536))
        """)
    )
    writer, reader = running["writer"], running["reader"]
    (wait,) = settled(writer, until=lambda look: look.of(writer)).of(writer)
    assert (wait.kind, wait.call, wait.targets) == (Kind.PIPE, "write", (reader,))
    assert wait.witness == f"writes a pipe that pid {reader} reads"


def test_a_reader_that_has_kept_the_other_end_waits_for_nobody_who_lives(
    program: Start, settled: Settled
) -> None:
    reader = program(
        code("""
        r, w = os.pipe()
        say("reader")
        os.read(r, 1)
    """)
    )["reader"]
    look = settled(reader, until=lambda look: look.of(reader), states={reader: State.INWARD})
    (wait,) = look.of(reader)
    assert (wait.kind, wait.call, wait.targets, wait.unseen) == (Kind.PIPE, "read", (), False)
    assert wait.witness == "reads a pipe of its own"
