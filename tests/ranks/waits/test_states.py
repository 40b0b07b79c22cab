"""What a process does that waits for nobody, and what is told where little can be seen."""

from __future__ import annotations

import os
import signal

import pytest

from stagewatch.ranks.waits.model import State
from tests.ranks.waits.conftest import Looking, Settled
from tests.ranks.waits.programs import Start, code
from tests.waiting import wait_for

DOES = {
    "sleeps": ("sleep()", State.SLEEPING),
    "tries again": ("while True: time.sleep(0.01)", State.RETRYING),
    "runs": ("while True: pass", State.RUNNING),
    "waits for its own thread": (
        "t = threading.Thread(target=threading.Lock().acquire); lock = threading.Lock();"
        " lock.acquire(); lock.acquire()",
        State.INWARD,
    ),
    "its thread runs": (
        "t = threading.Thread(target=lambda: [x for x in iter(int, 1)]); t.start(); t.join()",
        State.RUNNING,
    ),
    "waits for whoever comes": (
        "server = socket.create_server(('127.0.0.1', 0)); server.accept()",
        State.WAITING,
    ),
}


@pytest.mark.parametrize("does", DOES)
def test_the_state_of_a_process(program: Start, settled: Settled, does: str) -> None:
    text, state = DOES[does]
    me = program(code(f"say('me')\n{text}"))["me"]
    settled(me, states={me: state})


def test_a_stopped_process_and_a_zombie(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        say("stopped", fork(sleep))
        say("zombie", fork(lambda: None))
        say("parent")
        sleep()
        """)
    )
    stopped, zombie = running["stopped"], running["zombie"]
    os.kill(stopped, signal.SIGSTOP)
    look = settled(stopped, zombie, states={zombie: State.ZOMBIE, stopped: State.STOPPED})
    assert look.of(stopped) == ()
    os.kill(stopped, signal.SIGCONT)


def test_the_thread_that_counts_may_be_another(program: Start, waits: Looking) -> None:
    running = program(
        code("""
        r, w = os.pipe()
        def write():
            os.close(r)
            sleep()
        say("writer", fork(write))
        os.close(w)
        def train():
            say("thread", threading.get_native_id())
            os.read(r, 1)
        threading.Thread(target=train).start()
        say("main")
        sleep()
        """)
    )
    main, thread = running["main"], running["thread"]

    def waits_outward() -> bool:
        look = waits.look([main], threads={main: thread})
        process = look.processes[main]
        return process.thread == thread and process.state is State.WAITING

    wait_for(waits_outward, "the thread waits")
