"""Socket diagnostics against what the kernel tells the sockets' owner; other namespaces."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.ranks.socket_diag import TcpSocket, dump, open_diag

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
        assert (found.local_port, found.peer_port) == (end.getsockname()[1], end.getpeername()[1])
        raw = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        for name, (offset, form, scale) in FIELDS.items():
            [expected] = struct.unpack_from(form, raw, offset)
            assert getattr(found.statistics, name) == expected / scale, name
    sent = find(diag, client).statistics
    assert sent.bytes_received == 5_000


def test_thousands_of_sockets_come_in_many_messages(diag: socket.socket) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(400)
        ends = []
        for _ in range(300):
            ends.append(socket.create_connection(server.getsockname()))
            ends.append(server.accept()[0])
        wanted = {inode(end) for end in ends}
        found = {item.inode: item for item in dump(diag)}
        for end in ends:
            end.close()
    assert wanted <= found.keys()
    cookies = [found[number].cookie for number in wanted]
    assert len(set(cookies)) == len(cookies)
