"""TCP connections of ranks, by real processes that talk."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.exposition import Samples
from stagewatch.ranks import sockets as net
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.socket_diag import own_namespace
from stagewatch.ranks.sockets import NetCollector
from tests.fakes.open_files import OpenFiles
from tests.ranks.fakes import FakeRanks, families, program
from tests.waiting import wait_for

CLIENT = """
import socket, struct, sys
held = []
for line in sys.stdin:
    what, argument = line.split()
    if what == "connect":
        held.append(socket.create_connection(("127.0.0.1", int(argument))))
    elif what == "send":
        held[-1].sendall(b"x" * int(argument))
    elif what == "close":
        held.pop().close()
    elif what == "retransmissions":  # tcpi_total_retrans
        info = held[-1].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        print(*struct.unpack_from("I", info, 100))
        continue
    print("done")
"""
RANK = ("7", "train", "0")
PROC = Path("/proc")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(60)
        yield found


@pytest.fixture
def collector() -> Iterator[tuple[NetCollector, FakeRanks]]:
    ranks = FakeRanks()
    with closing(RankSockets(families(ranks), PROC, OpenFiles(PROC))) as sockets:
        yield NetCollector(sockets), ranks


def sent(out: Samples, side: str, port: int, direction: str) -> float | None:
    return out.value(net.BYTES, *RANK, side, str(port), direction)


def test_a_rank_that_calls_shows_the_port_it_calls(
    collector: tuple[NetCollector, FakeRanks], server: socket.socket
) -> None:
    found, ranks = collector
    port = server.getsockname()[1]
    with program(CLIENT) as rank, program(CLIENT) as stranger:
        ranks.add(rank.pid, 0)
        stranger.ask(f"connect {port}")
        server.accept()[0].close()
        rank.ask(f"connect {port}")
        with server.accept()[0] as peer:
            rank.ask("send 70000")
            peer.recv(70000, socket.MSG_WAITALL)
            peer.sendall(b"answer")
            out = wait_for(
                lambda: (
                    sent(out := found.collect(), "client", port, "sent") in (70_000, 70_001) and out
                ),
                "70,000 bytes",
            )
            labels = (*RANK, "client", str(port))
            assert out.value(net.CONNECTIONS, *labels, "established") == 1
            assert (out.value(net.RTT, *labels) or 0) > 0
            told = int(rank.ask("retransmissions -"))  # some, if this machine lags
            assert out.value(net.RETRANSMISSIONS, *labels) == told
            assert out.value(net.LAST_RECEIVED, *labels) is not None
            assert len(out.families[net.CONNECTIONS]) == 1, "the stranger's is nowhere"


class SilentOnce(OpenFiles):
    """A process that does not answer the first question for its sockets."""

    silent = True

    def read(
        self, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
    ) -> Mapping[int, bytes | None]:
        if file == "sockets" and self.silent:
            self.silent = False
            return {}
        return super().read(file, pids, prefixes)


def test_a_socket_of_a_process_that_did_not_answer_is_asked_for_again(
    server: socket.socket,
) -> None:
    ranks = FakeRanks()
    port = server.getsockname()[1]
    with (
        closing(RankSockets(families(ranks), PROC, SilentOnce(PROC))) as sockets,
        program(CLIENT) as rank,
    ):
        ranks.add(rank.pid, 0)
        rank.ask(f"connect {port}")
        with server.accept()[0]:
            assert sockets.look().owned == {RANK: []}
            assert [one.peer_port for one in sockets.look().owned[RANK]] == [port]


def test_what_a_closed_connection_had_counted_stays(
    collector: tuple[NetCollector, FakeRanks], server: socket.socket
) -> None:
    found, ranks = collector
    port = server.getsockname()[1]
    with program(CLIENT) as rank:
        ranks.add(rank.pid, 0)
        for number in (1, 2):
            rank.ask(f"connect {port}")
            with server.accept()[0] as peer:
                rank.ask("send 1000")
                peer.recv(1000, socket.MSG_WAITALL)
                wait_for(
                    lambda number=number: (
                        (sent(found.collect(), "client", port, "sent") or 0) >= 1000 * number
                    ),
                    f"{number} connections counted",
                )
                rank.ask("close -")
            out = found.collect()
            total = sent(out, "client", port, "sent")
            assert total is not None
            assert 1000 * number <= total <= 1001 * number, "a SYN is acknowledged as a byte"
        gone = (*RANK, "client", str(port))
        wait_for(
            lambda: found.collect().value(net.CONNECTIONS, *gone, "established") is None,
            "no connection",
        )


def test_a_rank_whose_namespace_may_not_be_entered_is_counted(tmp_path: Path) -> None:
    before = own_namespace(PROC)
    (tmp_path / "9" / "ns").mkdir(parents=True)
    (tmp_path / "9" / "ns" / "net").symlink_to("net:[7]")  # which cannot be opened
    (tmp_path / "9" / "stat").write_text("9 (x) S 1 " + "0 " * 15 + "1 0 5 0 0")
    ranks = FakeRanks()
    ranks.add(9, 0)
    out = NetCollector(
        RankSockets(families(ranks, tmp_path), tmp_path, OpenFiles(tmp_path))
    ).collect()
    assert out.value(net.UNREADABLE) == 1
    assert net.BYTES not in out.families
    assert own_namespace(PROC) == before, "the agent is where it was"
