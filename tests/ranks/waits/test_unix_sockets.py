"""Unix sockets: pairs, servers and those that do not accept."""

from __future__ import annotations

from stagewatch.ranks.waits.model import Kind, Mode
from tests.ranks.waits.chain import ends
from tests.ranks.waits.conftest import Settled
from tests.ranks.waits.programs import Start, code


def test_a_reader_waits_for_who_holds_the_peer(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        mine, its = socket.socketpair()
        def work():
            mine.close()
            sleep()
        say("worker", fork(work))
        its.close()
        say("trainer")
        mine.recv(1)
        """)
    )
    trainer, worker = running["trainer"], running["worker"]
    (wait,) = settled(trainer, until=lambda look: look.of(trainer)).of(trainer)
    assert (wait.kind, wait.targets) == (Kind.UNIX, (worker,))
    assert wait.witness == f"reads a Unix socket to pid {worker}"


SERVER = code("""
    import tempfile
    path = tempfile.mkdtemp() + "/s"
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(5)
    def serve():
        say("server")
        while True:
            connection, _ = server.accept()
            threading.Thread(target=answer, args=(connection,)).start()
    def answer(connection):
        if connection.recv(1) == b"?":
            sleep()
    def ask(what):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.send(what)
        client.recv(1)
        sleep()
    fork(serve)
    server.close()
    def idle():
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        sleep()
    say("idle", fork(idle))
    say("client")
    ask(b"?")
""")


def test_a_server_that_owes_an_answer_is_not_excused_by_an_idle_client(
    program: Start, settled: Settled
) -> None:
    running = program(SERVER)
    client, server, idle = running["client"], running["server"], running["idle"]
    look = settled(client, until=lambda look: look.of(client) and look.of(server))
    modes = {wait.mode for wait in look.of(server) if idle in wait.targets}
    assert modes == {Mode.ANYBODY}
    assert ends(look, [client]).pids == (server,)
