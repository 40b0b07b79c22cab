"""TCP within a node, across nodes and network namespaces, and who owes an answer."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagewatch.ranks.socket_diag import TcpSocket, TcpStatistics, dump, open_diag
from stagewatch.ranks.waits import tcp
from stagewatch.ranks.waits.model import Kind, State
from tests.ranks.waits.chain import ends
from tests.ranks.waits.conftest import Looking, Settled
from tests.ranks.waits.programs import Start, code
from tests.waiting import wait_for

HTTP = code("""
    import http.server, urllib.request
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            sleep()
        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    say("port", server.server_port)
    def serve():
        say("server")
        server.serve_forever()
    fork(serve)
    server.socket.close()
    say("client")
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read()
""")


def test_a_client_waits_for_the_server_that_has_not_answered(
    program: Start, settled: Settled
) -> None:
    running = program(HTTP)
    client, server = running["client"], running["server"]
    look = settled(client, until=lambda look: look.of(client), states={server: State.SLEEPING})
    (wait,) = look.of(client)
    (connection,) = wait.connections
    assert (wait.kind, wait.targets) == (Kind.TCP, (server,))
    assert wait.witness.startswith(
        f"reads a TCP connection to pid {server}, which has not answered for "
    )
    assert connection.owed
    assert not connection.accepted
    assert connection.remote == f"127.0.0.1:{running['port']}"
    assert connection.sent_seconds is not None
    assert ends(look, [client]).pids == (server,)


def test_a_server_that_does_not_accept_is_waited_for(program: Start, settled: Settled) -> None:
    running = program(
        code("""
        server = socket.create_server(("127.0.0.1", 0))
        def hang():
            say("server")
            sleep()
        fork(hang)
        client = socket.create_connection(server.getsockname())
        server.close()
        say("client")
        client.recv(1)
        """)
    )
    client, server = running["client"], running["server"]
    (wait,) = settled(client, until=lambda look: look.of(client)).of(client)
    assert wait.targets == (server,)
    assert wait.witness.endswith(f"to pid {server}, which has not accepted it")


@pytest.mark.parametrize("timeout", [None, 3600.0])
def test_a_writer_waits_for_who_does_not_read(
    timeout: float | None, program: Start, settled: Settled
) -> None:
    """With a timeout of its own Python polls, and then writes."""
    running = program(
        code(f"""
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        def hang():
            accepted, _ = server.accept()
            client.close()
            say("reader")
            sleep()
        reader = fork(hang)
        server.close()
        say("writer")
        client.settimeout({timeout})
        client.sendall(bytes(64 << 20))
        """)
    )
    writer, reader = running["writer"], running["reader"]
    look = settled(writer, until=lambda look: any(wait.connections for wait in look.of(writer)))
    (wait,) = look.of(writer)
    assert wait.targets == (reader,)
    assert "which has not taken" in wait.witness
    assert wait.writes
    assert wait.connections[0].unsent > 0


def test_who_holds_a_connection_is_told_to_who_asks_from_the_other_node(
    program: Start, waits: Looking
) -> None:
    running = program(HTTP)
    client, server = running["client"], running["server"]

    def asked() -> tuple[str, str] | None:
        for wait in waits.look([client]).of(client):
            for one in wait.connections:
                return one.remote, one.local
        return None

    ends_of_it = wait_for(asked, "the client waits")
    look = waits.look([], connections=[ends_of_it])
    (connection,) = look.connections
    assert connection.owners == (server,)
    assert connection.accepted
    assert not connection.owed
    assert look.processes[server].state is State.SLEEPING


def test_containers_on_one_node_are_joined_by_their_addresses(
    program: Start, settled: Settled, waits: Looking
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes network namespaces")
    name = f"sw{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {name}a type veth peer name {name}b netns {name}",
        f"ip addr add 10.213.7.1/30 dev {name}a",
        f"ip link set {name}a up",
        f"ip netns exec {name} ip addr add 10.213.7.2/30 dev {name}b",
        f"ip netns exec {name} ip link set {name}b up",
    ]
    try:
        for command in commands:
            if subprocess.run(command.split(), check=False, capture_output=True).returncode:
                pytest.skip(f"this machine cannot: {command}")
        far = program(
            code("""
            server = socket.create_server(("10.213.7.2", 0))
            say("port", server.getsockname()[1])
            accepted, _ = server.accept()
            say("server")
            sleep()
            """),
            prefix=("ip", "netns", "exec", name),
        )
        near = program(
            code("""
            client = socket.create_connection(("10.213.7.2", int(sys.argv[1])))
            client.send(b"?")
            say("client")
            client.recv(1)
            """),
            far["port"],
        )
        client, server = near["client"], far["server"]
        look = settled(client, until=lambda look: any(wait.targets for wait in look.of(client)))
        (wait,) = look.of(client)
        assert wait.targets == (server,)
        (told,) = waits.look([server], connected=[server]).connections
        assert (told.owners, told.accepted, told.owed) == ((server,), True, False)
        assert [one.owners for one in look.connections] == [(server,)]
        assert (told.remote, told.local) == (wait.connections[0].local, wait.connections[0].remote)
        far.script.kill()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", f"{name}a"], check=False, capture_output=True)


def end(at: str, to: str, inode: int, **more: Any) -> TcpSocket:
    """One end of a connection."""
    (address, port), (other, other_port) = tcp.parse(at) or (b"", 0), tcp.parse(to) or (b"", 0)
    return TcpSocket(
        **{"state": "established", "cookie": 0, "receive_queue": 0, "send_queue": 0} | more,
        local_port=port,
        peer_port=other_port,
        inode=inode,
        local_address=address,
        peer_address=other,
        family=socket.AF_INET,
    )


def asked_and_got(sent: int, received: int, *, last: float, bytes_received: int) -> TcpStatistics:
    return TcpStatistics(30.0, 0.0, 0, 0, bytes_received, sent, received, last)


@pytest.mark.parametrize(
    ("statistics", "owed"),
    [
        (asked_and_got(1, 0, last=20.0, bytes_received=0), True),
        (asked_and_got(8, 7, last=20.0, bytes_received=9000), True),
        (asked_and_got(8, 8, last=40.0, bytes_received=9000), False),
        (asked_and_got(8, 7, last=30.0, bytes_received=9000), True),
        (asked_and_got(8, 8, last=30.0, bytes_received=9000), False),
        (asked_and_got(0, 0, last=20.0, bytes_received=0), False),
        (asked_and_got(40, 3, last=20.0, bytes_received=150), False),
    ],
)
def test_who_owes_an_answer(statistics: TcpStatistics, owed: bool) -> None:
    one = end("10.0.0.1:5000", "10.0.0.2:80", 7, statistics=statistics)
    assert tcp.describe(one, accepted=False).owed is owed


def test_what_has_come_in_unread_is_owed_by_nobody_else() -> None:
    statistics = asked_and_got(1, 1, last=20.0, bytes_received=10)
    one = end("10.0.0.1:5000", "10.0.0.2:80", 7, statistics=statistics, receive_queue=10)
    assert not tcp.describe(one, accepted=False).owed


def test_the_table_of_proc_says_the_same_as_the_diagnostics() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        accepted, _ = server.accept()
        with accepted, open_diag() as diag:
            inodes = {os.fstat(one.fileno()).st_ino for one in (server, client, accepted)}
            told = {one.inode: one for one in dump(diag) if one.inode in inodes}
            raw = Path("/proc/self/net/tcp").read_bytes()
            read = {one.inode: one for one in tcp.parse_table(raw) if one.inode in inodes}
    assert told.keys() == read.keys() == inodes
    for inode in inodes:
        assert tcp.local(told[inode]) == tcp.local(read[inode])
        assert tcp.remote(told[inode]) == tcp.remote(read[inode])
        assert told[inode].state == read[inode].state
