"""Eight ranks upload over HTTP to another host; one of them has a bad link."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from stagewatch.core.exposition import Metric, Samples
from stagewatch.core.processes import Children
from stagewatch.ranks import sockets as net
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.sockets import NetCollector
from tests.fakes.network import Hosts, missing
from tests.fakes.open_files import OpenFiles
from tests.ranks.fakes import FakeRanks, families, program
from tests.waiting import wait_for

RANKS = 8
BAD = 5
PORT = 8123

PROC = Path("/proc")
SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 65536)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *arguments):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server(("0.0.0.0", 8123), Handler).serve_forever()
"""
TRAINER = """
import http.client, sys, time
source, server = sys.argv[1:]
connection = http.client.HTTPConnection(server, 8123, source_address=(source, 0), timeout=600)
connection.connect()
print("connected")
while True:
    connection.request("POST", "/weights", body=b"w" * 131072)
    connection.getresponse().read()
    time.sleep(0.2)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts, of which `b` runs the server."""
    if reason := missing():
        pytest.skip(f"two network namespaces: {reason}")
    found = Hosts(tmp_path)
    with Children() as children:
        children.start([*found.enter(found.b), sys.executable, "-c", SERVER])
        wait_for(
            lambda: f":{PORT} " in found.run(found.b, "ss", "-Hltn") + " ", "the server listens"
        )
        yield found
    found.close()


class Job:
    """The ranks, on host `a`, and the collector, on the host around both."""

    def __init__(self, hosts: Hosts, stack: ExitStack, addresses: list[tuple[str, str]]) -> None:
        ranks = FakeRanks()
        sockets = stack.enter_context(closing(RankSockets(families(ranks), PROC, OpenFiles(PROC))))
        self._collector = NetCollector(sockets)
        trainers = [
            stack.enter_context(program(TRAINER, *pair, prefix=hosts.enter(hosts.a)))
            for pair in addresses
        ]
        for number, trainer in enumerate(trainers):
            assert trainer.hear() == "connected"
            ranks.add(trainer.pid, number)

    def collect(self) -> Samples:
        return self._collector.collect()


def by_rank(out: Samples, metric: Metric) -> list[float]:
    labels = ("client", str(PORT))
    return [out.value(metric, "7", "train", str(rank), *labels) or 0 for rank in range(RANKS)]


def alone(values: list[float], factor: float) -> bool:
    """Whether the bad rank's value, and no other, is that far above its peers' median."""
    usual = statistics.median(values)
    return [rank for rank, value in enumerate(values) if value > factor * usual] == [BAD]


def test_a_rank_with_packet_loss_stands_out_from_its_peers(hosts: Hosts) -> None:
    own = "10.77.0.105"
    hosts.run(hosts.a, "ip", "address", "add", f"{own}/16", "dev", "wire")
    hosts.lose(own, 0.10)
    addresses = [("10.77.0.1", "10.77.0.2")] * RANKS
    addresses[BAD] = (own, "10.77.0.2")
    with ExitStack() as stack:
        job = Job(hosts, stack, addresses)

        def stands_out() -> bool:
            out = job.collect()
            segments = by_rank(out, net.SEGMENTS)
            repeats = by_rank(out, net.RETRANSMISSIONS)
            if min(segments) < 20 or repeats[BAD] < 5:
                return False
            ratios = [again / sent for again, sent in zip(repeats, segments, strict=True)]
            return ratios[BAD] > 0.03 and alone(ratios, 5)

        wait_for(stands_out, "rank 5 repeats more than its peers", limit=120)


def test_a_rank_on_a_slow_link_stands_out_from_its_peers(hosts: Hosts) -> None:
    hosts.add_delayed_link(milliseconds=150)
    addresses = [("10.77.0.1", "10.77.0.2")] * RANKS
    addresses[BAD] = ("10.78.0.1", "10.78.0.2")
    with ExitStack() as stack:
        job = Job(hosts, stack, addresses)

        def stands_out() -> bool:
            times = by_rank(job.collect(), net.RTT)
            return min(times) > 0 and times[BAD] >= 0.29 and alone(times, 5)

        wait_for(stands_out, "rank 5 has a longer round trip than its peers", limit=120)
        assert job.collect().value(net.UNREADABLE) == 0
