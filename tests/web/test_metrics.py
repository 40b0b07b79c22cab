"""What a scraper sees."""

from __future__ import annotations

import gzip
import http.client

import pytest

from tests.web.http_helpers import Serve
from tests.web.status_scenes import Hangs, gpus, ranks


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_gzip_is_served_where_it_is_accepted(settled: Serve, path: str) -> None:
    agent = settled("hang")
    packed = agent.get(path, Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert int(packed.headers["Content-Length"]) == len(packed.body)
    plain = agent.get(path, Accept_Encoding="identity")
    assert plain.headers["Content-Encoding"] is None
    assert "Accept-Encoding" in plain.headers["Vary"]
    assert len(packed.body) < len(plain.body) / 3
    assert b"gpu" in gzip.decompress(packed.body)


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q = 0.000", False),
        ("*, gzip;q=0", False),
        ("br", False),
        ("gzipped", False),
        ("", False),
    ],
)
def test_a_refusal_of_gzip_is_understood(settled: Serve, accepted: str, expected: bool) -> None:
    reply = settled("hang").get("/metrics", Accept_Encoding=accepted)
    assert (reply.headers["Content-Encoding"] == "gzip") is expected


def test_head_has_the_headers_of_get_and_no_body(settled: Serve) -> None:
    agent = settled({"gpu": gpus})
    head = agent.get("/-/healthy", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == agent.get("/-/healthy").headers["Content-Length"]


def test_one_connection_serves_many_scrapes(settled: Serve) -> None:
    client = http.client.HTTPConnection(*settled("healthy").address, timeout=30)
    client.connect()
    sock = client.sock
    for _ in range(5):
        client.request("GET", "/metrics")
        assert client.getresponse().read()
        assert client.sock is sock
    client.close()


def test_a_stuck_collector_is_absent_and_named_while_the_others_are_served(serve: Serve) -> None:
    agent = serve({"gpu": Hangs(), "ranks": ranks}, interval=0.05)
    while 'stagewatch_collector_stuck_seconds{collector="gpu"} 0' in agent.get("/metrics").text:
        pass
    text = agent.get("/metrics").text
    assert 'stagewatch_collector_success{collector="gpu"} 0' in text
    assert "rl_rank_step" in text
    assert "gpu_info" not in text
    assert agent.get("/-/healthy").status == 200
    assert agent.get("/-/ready").status == 200
    assert agent.get("/").status == 200
