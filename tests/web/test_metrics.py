"""What a scraper sees."""

from __future__ import annotations

import gzip
import http.client
import platform
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from stagewatch.core.runner import Runner
from stagewatch.web.message import Request
from stagewatch.web.metrics import PROCESS_SECONDS, MetricsPage
from tests.web.http_helpers import Serve
from tests.web.status_scenes import Hangs, gpus, nothing, ranks


def names(text: str) -> set[str]:
    return {sample.name for family in parse_text(text) for sample in family.samples}


def test_text_is_served_to_whoever_asks_for_nothing_else(settled: Serve) -> None:
    reply = settled("hang").get("/metrics")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = names(reply.text)
    assert {"gpu_info", "rl_rank_step", "fault_injection_active"} <= found
    assert {"stagewatch_collector_success", "process_resident_memory_bytes"} <= found
    assert "# EOF" not in reply.text


@pytest.mark.parametrize(
    "accept", ["text/plain", "application/openmetrics-text;version=1.0.0", "image/png", ",;=", ""]
)
def test_text_is_served_whatever_a_client_would_rather_have(settled: Serve, accept: str) -> None:
    reply = settled("healthy").get("/metrics", Accept=accept)
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "gpu_info" in names(reply.text)


def test_the_version_is_told(settled: Serve) -> None:
    families = parse_text(settled().get("/metrics").text)
    build = next(family for family in families if family.name == "stagewatch_build_info")
    assert build.samples[0].labels["python"] == platform.python_version()
    assert build.samples[0].labels["version"]


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


def test_other_parameters_are_ignored(settled: Serve) -> None:
    assert "gpu_info" in settled("healthy").get("/metrics?target=x&debug").text


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


def test_a_collector_that_found_nothing_adds_nothing(settled: Serve) -> None:
    found = names(settled({"gpu": nothing}).get("/metrics").text)
    assert all(name.startswith(("stagewatch_", "process_")) for name in found)


def test_scrapes_within_a_second_share_one_look_at_the_agents_process() -> None:
    now = 100.0
    page = MetricsPage(Runner([]), clock=lambda: now)

    def open_files() -> float:
        families = parse_text(page(Request("GET", "/metrics", {})).body.decode())
        return next(f.samples[0].value for f in families if f.name == "process_open_fds")

    before = open_files()
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(Path("/dev/null").open())
        now += PROCESS_SECONDS * 0.9
        assert open_files() == before
        now += PROCESS_SECONDS * 0.2
        assert open_files() > before + 25
