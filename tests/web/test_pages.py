"""Which pages there are, and what they answer when something is wrong."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import ExitStack

import pytest

from stagewatch.web.connection import Limits
from tests.waiting import wait_for
from tests.web.http_helpers import Serve
from tests.web.status_scenes import Hangs, fails, gpus


def test_healthy_answers_whatever_the_collectors_do(serve: Serve) -> None:
    assert serve("stuck").get("/-/healthy").text == "healthy\n"


def test_ready_once_a_collector_answers(settled: Serve) -> None:
    reply = settled({"gpu": gpus, "clock": fails}).get("/-/ready")
    assert (reply.status, reply.text) == (200, "ready\n")


def test_not_ready_before_anything_was_collected(serve: Serve) -> None:
    agent = serve({"gpu": Hangs()})
    reply = agent.get("/-/ready")
    assert reply.status == 503
    assert "gpu: has not answered yet" in reply.text


def test_not_ready_while_every_collector_fails_and_it_says_how(settled: Serve) -> None:
    reply = settled({"clock": fails}).get("/-/ready")
    assert reply.status == 503
    assert "clock: failing: chronyd: cannot open" in reply.text


def test_not_ready_once_the_last_answer_is_stale(serve: Serve) -> None:
    calls: list[int] = []
    block = threading.Event()

    def once() -> object:
        calls.append(1)
        if len(calls) > 1:
            block.wait()
        return gpus()

    agent = serve({"gpu": once}, interval=0.05)
    wait_for(lambda: agent.get("/-/ready").status == 503, "the last answer is stale")
    wait_for(lambda: "gpu: stuck" in agent.get("/-/ready").text, "the collector is called stuck")
    assert "gpu_info" not in agent.get("/metrics").text
    block.set()
    wait_for(lambda: agent.get("/-/ready").status == 200, "the agent is ready again")


def test_not_ready_without_collectors(serve: Serve) -> None:
    assert "no collector is enabled" in serve({}).get("/-/ready").text


@pytest.mark.parametrize(
    "path",
    [
        "/metric",
        "/metrics/",
        "/metrics/..",
        "/../metrics",
        "/./metrics",
        "//metrics",
        "/%6detrics",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/-/healthy%00",
        "/metrics;x=1",
        "/METRICS",
        "/etc/passwd",
        "/" + "a/" * 2000,
    ],
)
def test_only_the_exact_paths_exist(serve: Serve, path: str) -> None:
    reply = serve().get(path)
    assert reply.status == 404
    assert reply.text == "there is no such page\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"])
def test_other_methods_are_refused(serve: Serve, method: str) -> None:
    reply = serve().get("/metrics", method=method)
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD"


def test_a_failing_page_harms_no_other_and_is_logged_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> tuple[str, bytes]:
        raise RuntimeError("no nodes for secret-host")

    agent = serve(routes={"/sd": broken})
    with caplog.at_level(logging.ERROR):
        replies = [agent.get("/sd") for _ in range(3)]
    assert [reply.status for reply in replies] == [500] * 3
    assert "secret-host" not in replies[0].text
    assert len([record for record in caplog.records if "/sd" in record.message]) == 1
    assert agent.get("/metrics").status == 200


def test_a_hanging_page_leaves_places_for_the_others(serve: Serve) -> None:
    asked = threading.Semaphore(0)
    end = threading.Event()

    def hangs() -> tuple[str, bytes]:
        asked.release()
        end.wait()
        return "text/plain", b"late"

    agent = serve(
        routes={"/sd": hangs},
        limits=Limits(connections=6, connections_per_peer=6, at_once=2, wait_seconds=0.1),
    )
    waiting = []
    for _ in range(2):
        waiting.append(agent.connect())
        waiting[-1].sendall(b"GET /sd HTTP/1.1\r\nHost: x\r\n\r\n")
        asked.acquire()
    assert agent.get("/sd").status == 503
    assert agent.get("/metrics").status == 200
    assert agent.get("/-/healthy").status == 200
    end.set()
    for sock in waiting:
        assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
        sock.close()
    assert agent.get("/sd").status == 200


def test_slow_readers_of_a_long_page_share_it(serve: Serve) -> None:
    """Each took a copy of its own, and two: 64 readers of 8.5 MB took 519 MiB."""
    made: list[int] = []
    given: list[bytes] = []

    def long() -> tuple[str, bytes]:
        made.append(1)
        given.append(b"x" * (8 << 20))
        return "text/plain", given.pop()

    agent = serve("nothing", routes={"/long": long})
    readers = []
    with ExitStack() as stack:
        for _ in range(12):
            readers.append(stack.enter_context(agent.connect()))
            readers[-1].sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader in readers:
            assert reader.recv(1, socket.MSG_PEEK)
        assert len(made) < len(readers) / 2
    fresh = len(made)
    wait_for(lambda: agent.get("/long").status == 200 and len(made) > fresh, "a page of its own")
