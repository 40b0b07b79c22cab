"""Which pages there are, and what they answer when something is wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from stagewatch.web import agent_server
from stagewatch.web.connection import Limits
from tests.web.http_helpers import Serve
from tests.web.status_scenes import Hangs, fails, gpus


def test_healthy_answers_whatever_the_collectors_do(serve: Serve) -> None:
    assert serve("stuck").get("/-/healthy").text == "healthy\n"


def test_ready_once_a_collector_answers(settled: Serve) -> None:
    reply = settled({"gpu": gpus, "clock": fails}).get("/-/ready")
    assert (reply.status, reply.text) == (200, "ready\n")


@pytest.mark.parametrize("parts", [{"gpu": Hangs}, {"clock": lambda: fails}])
def test_not_ready_while_no_collector_answers(
    settled: Serve, parts: dict[str, Callable[[], Any]]
) -> None:
    reply = settled({name: make() for name, make in parts.items()}).get("/-/ready")
    assert (reply.status, reply.text) == (503, "not ready: no collector answers; see /\n")


def test_only_the_exact_paths_exist(serve: Serve) -> None:
    agent = serve()
    for path in ("/metric", "/metrics/", "/../metrics", "//metrics", "/%6detrics", "/METRICS"):
        reply = agent.get(path)
        assert (reply.status, reply.text) == (404, "there is no such page\n")


def test_other_methods_are_refused(serve: Serve) -> None:
    agent = serve()
    for method in ("POST", "OPTIONS", "BREW"):
        reply = agent.get("/metrics", method=method)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


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


def test_slow_readers_of_a_long_page_hold_the_same_bytes(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer it is, the older it may be, as long as somebody still takes it."""
    monkeypatch.setattr(agent_server, "SHARED_SECONDS", 0.0)
    made = []

    def page() -> tuple[str, bytes]:
        made.append(bytes(100_000_000))
        return "text/plain", made[-1]

    agent = serve(routes={"/big": page}, limits=Limits(send_seconds=600.0))
    with ExitStack() as stack:
        for _ in range(8):
            sock = stack.enter_context(agent.connect())
            sock.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert len(made) == 1
