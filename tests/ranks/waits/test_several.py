"""Programs that wait for several things at once: poll, select, epoll, event loops."""

from __future__ import annotations

import pytest

from stagewatch.ranks.waits.model import Connection, Kind, Mode
from stagewatch.ranks.waits.other_end import OtherEnd
from stagewatch.ranks.waits.several import choose
from tests.ranks.waits.chain import ends
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code

TWO_PIPES = code("""
    import select
    pipes = [os.pipe(), os.pipe()]
    for (r, w), name in zip(pipes, ("first", "second")):
        def write():
            for r, _ in pipes:
                os.close(r)
            for _, other in pipes:
                if other != w:
                    os.close(other)
            sleep()
        say(name, fork(write))
    for _, w in pipes:
        os.close(w)
    say("waiter")
    if sys.argv[1] == "poll":
        chosen = select.poll()
    elif sys.argv[1] == "epoll":
        chosen = select.epoll()
    else:
        select.select([r for r, _ in pipes], [], [])
    for r, _ in pipes:
        chosen.register(r, select.POLLIN)
    while True:
        chosen.poll(0.05 if "again" in sys.argv and sys.argv[1] == "epoll" else
                    50 if "again" in sys.argv else None)
""")


@pytest.mark.parametrize(("call", "again"), [("poll", ()), ("epoll", ("again",))])
def test_a_waiter_waits_for_any_of_the_descriptors(
    program: Start, settled: Settled, call: str, again: tuple[str, ...]
) -> None:
    running = program(TWO_PIPES, call, *again)
    waiter = running["waiter"]
    look = settled(waiter, until=lambda look: look.of(waiter))
    (wait,) = look.of(waiter)
    assert (wait.kind, wait.mode) == (Kind.PIPE, Mode.ANY)
    assert wait.call.startswith(call)
    assert set(wait.targets) == {running["first"], running["second"]}
    assert bool(wait.seconds_at_least) is not bool(again)


def test_threads_that_take_turns_at_one_loop_wait_together(
    program: Start, settled: Settled
) -> None:
    running = program(
        code("""
        import select
        r, w = os.pipe()
        def write():
            os.close(r)
            sleep()
        say("writer", fork(write))
        os.close(w)
        loop = select.epoll()
        loop.register(r, select.EPOLLIN)
        turn = threading.Lock()
        def work():
            while True:
                with turn:
                    loop.poll(0.1)
                time.sleep(0.01)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for one in threads:
            one.start()
        say("waiter")
        threads[0].join()
        """)
    )
    waiter, writer = running["waiter"], running["writer"]
    settled(waiter, until=lambda look: ends(look, [waiter]).pids == (writer,))


ASYNCIO = code("""
    import asyncio
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    async def answer(reader, writer):
        await reader.readline()
        if sys.argv[1] == "forgets":
            await asyncio.Event().wait()
        if sys.argv[1] == "upstream":
            up, _ = await asyncio.open_unix_connection(sock=upstream)
            await up.readline()
    async def serve():
        running = await asyncio.start_server(answer, sock=server)
        say("server")
        await running.serve_forever()
    async def ask():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"?\\n")
        await writer.drain()
        say("client")
        await reader.readline()
    upstream, its = socket.socketpair()
    def work():
        upstream.close(); server.close()
        sleep()
    say("engine", fork(work))
    its.close()
    fork(lambda: asyncio.run(serve()))
    server.close()
    upstream.close()
    asyncio.run(ask())
""")


@pytest.mark.parametrize(("what", "blamed"), [("forgets", "server"), ("upstream", "engine")])
def test_an_event_loop_is_followed_to_who_owes_it_an_answer(
    program: Start, settled: Settled, what: str, blamed: str
) -> None:
    running = program(ASYNCIO, what)
    client, server, culprit = running["client"], running["server"], running[blamed]
    look = settled(client, until=lambda look: ends(look, [client]).pids == (culprit,))
    (wait,) = look.of(client)
    assert wait.targets == (server,)
    assert "which has not answered" in wait.witness


def connected(pid: int, *, owed: bool, accepted: bool = False) -> OtherEnd:
    connection = Connection("10.0.0.1:1", f"10.0.0.2:{pid}", (pid,), owed=owed, accepted=accepted)
    return OtherEnd(
        *(Kind.TCP, f"a connection to pid {pid}", frozenset({pid})),
        accepted=accepted,
        weak=not owed,
        connection=connection,
    )


LISTENING = OtherEnd(Kind.ACCEPT, "whoever connects", listens=True)
WAKE_UP = OtherEnd(Kind.OWN, "its own eventfd", own=True)


def test_idle_connections_give_way_to_those_that_owe_an_answer() -> None:
    choice = choose([WAKE_UP, connected(1, owed=False), connected(2, owed=True)])
    assert (choice.mode, choice.pids) == (Mode.ANY, {2})


def test_a_server_waits_for_anybody() -> None:
    choice = choose([LISTENING, WAKE_UP, connected(1, owed=False, accepted=True)])
    assert (choice.mode, choice.pids, choice.kind) == (Mode.ANYBODY, {1}, Kind.ACCEPT)


def test_a_server_that_has_asked_another_waits_for_that() -> None:
    ends = [LISTENING, connected(1, owed=True, accepted=True), connected(2, owed=True)]
    assert choose(ends).pids == {2}
