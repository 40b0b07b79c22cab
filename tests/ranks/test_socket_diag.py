"""Socket diagnostics against what the kernel tells the sockets' owner; other namespaces."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.ranks.socket_diag import NamespaceSockets, TcpSocket, dump, namespace_of, open_diag

PROC = Path("/proc")
FIELDS = {  # offsets in struct tcp_info, linux/tcp.h
    "retransmissions": (100, "=I", 1),
    "bytes_acknowledged": (120, "=Q", 1),
    "bytes_received": (128, "=Q", 1),
    "data_segments_sent": (156, "=I", 1),
    "rtt": (68, "=I", 1e6),
}


@pytest.fixture
def diag() -> Iterator[socket.socket]:
    with open_diag() as found:
        yield found


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, ...]]:
    """A listening socket and a connection to it: server, client, accepted."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as server, socket.socket(family) as client:
        try:
            server.bind((request.param, 0))
        except OSError as error:
            pytest.skip(f"this machine has no {request.param}: {error}")
        server.listen(5)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            yield server, client, accepted


def inode(of: socket.socket) -> int:
    return os.fstat(of.fileno()).st_ino


def find(diag: socket.socket, wanted: socket.socket) -> TcpSocket:
    [found] = dump(diag, lambda number: number == inode(wanted))
    return found


def test_statistics_equal_those_the_owner_sees(
    diag: socket.socket, pair: tuple[socket.socket, ...]
) -> None:
    _, client, accepted = pair
    client.sendall(b"x" * 100_000)
    accepted.sendall(b"y" * 5_000)
    assert len(accepted.recv(100_000, socket.MSG_WAITALL)) == 100_000
    assert len(client.recv(5_000, socket.MSG_WAITALL)) == 5_000
    for end in (client, accepted):
        found = find(diag, end)
        assert found.statistics is not None
        assert found.state == "established"
        assert (found.local_port, found.peer_port) == (
            end.getsockname()[1],
            end.getpeername()[1],
        )
        raw = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        for name, (offset, form, scale) in FIELDS.items():
            [expected] = struct.unpack_from(form, raw, offset)
            assert getattr(found.statistics, name) == expected / scale, name
    sent = find(diag, client).statistics
    assert sent is not None
    assert sent.bytes_received == 5_000


def test_what_is_not_read_stands_in_the_receive_queue(
    diag: socket.socket, pair: tuple[socket.socket, ...]
) -> None:
    _, client, accepted = pair
    client.sendall(b"x" * 1000)
    assert len(accepted.recv(1000, socket.MSG_PEEK | socket.MSG_WAITALL)) == 1000
    assert find(diag, accepted).receive_queue == 1000


def test_a_listening_socket_tells_its_queue_and_its_limit(
    diag: socket.socket, pair: tuple[socket.socket, ...]
) -> None:
    server, *_ = pair
    with socket.socket(server.family) as waiting:
        waiting.connect(server.getsockname())
        found = find(diag, server)
        assert (found.state, found.receive_queue, found.send_queue) == ("listen", 1, 5)


def test_a_kernel_that_refuses_is_an_error(diag: socket.socket) -> None:
    diag.close()
    with pytest.raises(SourceError, match="socket diagnostics"):
        list(dump(diag))


@pytest.fixture
def sockets() -> Iterator[NamespaceSockets]:
    found = NamespaceSockets(PROC)
    yield found
    found.keep(())


def own() -> int:
    namespace = namespace_of(PROC, "self")
    assert namespace is not None
    return namespace


def test_one_socket_serves_a_namespace(sockets: NamespaceSockets) -> None:
    first = sockets.get(own(), os.getpid())
    assert sockets.get(own(), os.getpid()) is first


def test_a_namespace_that_nobody_is_in_any_more_is_let_go(sockets: NamespaceSockets) -> None:
    first = sockets.get(own(), os.getpid())
    sockets.keep({own()})
    assert first.fileno() >= 0
    sockets.keep({1234})
    assert first.fileno() == -1


def test_a_process_that_is_gone_is_an_error(sockets: NamespaceSockets) -> None:
    assert namespace_of(PROC, 1 << 30) is None
    with pytest.raises(SourceError, match="network namespace of process"):
        sockets.get(1234, 1 << 30)
