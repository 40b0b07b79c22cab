"""Sockets in other network namespaces, where that is allowed and where not."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.ranks import sockets as net
from stagewatch.ranks.network_namespaces import NamespaceSockets, namespace_of
from stagewatch.ranks.sockets import NetCollector
from tests.ranks.fakes import FakeRanks, families

PROC = Path("/proc")


@pytest.fixture
def sockets() -> Iterator[NamespaceSockets]:
    found = NamespaceSockets(lambda: socket.socket(socket.AF_UNIX), PROC)
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


def test_a_rank_whose_namespace_may_not_be_entered_is_counted(tmp_path: Path) -> None:
    for pid in ("9", "self"):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns" / "net").write_text("a file, and no namespace")
    (tmp_path / "9" / "stat").write_text("9 (x) S 1 " + "0 " * 15 + "1 0 5 0 0")
    ranks = FakeRanks()
    ranks.add(9, 0)
    out = NetCollector(families(ranks, tmp_path), tmp_path).collect()
    assert out.value(net.UNREADABLE) == 1
    assert net.BYTES not in out.families
    assert os.stat("/proc/self/ns/net").st_ino == own(), "the agent is where it was"  # noqa: PTH116
