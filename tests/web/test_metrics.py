"""What a scraper sees."""

from __future__ import annotations

import gzip
import sys

import pytest

from stagewatch.core.exposition import Samples
from stagewatch.core.runner import Job, Runner
from stagewatch.web import metrics
from stagewatch.web.message import Request
from stagewatch.web.metrics import MetricsPage
from tests.web.http_helpers import Serve
from tests.web.status_scenes import Always, Hangs, ranks


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


def test_a_scrape_opens_and_lists_nothing() -> None:
    """Each system call may make it wait for a collector that computes, or lack a descriptor."""
    asked: list[str] = []
    watching = [True]
    sys.addaudithook(lambda event, _: asked.append(event) if watching else None)
    page = MetricsPage(Runner([]))
    asked.clear()
    text = page(Request("GET", "/metrics", {})).body
    calls = [event for event in asked if event.startswith(("os.", "open"))]
    watching.clear()
    assert calls == []
    assert b"process_resident_memory_bytes " in text
    assert b"process_cpu_seconds_total " in text


def test_scrapers_share_a_page_until_a_collector_leaves_a_new_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job("always", Always(Samples), 60)
    page = MetricsPage(Runner([job]))

    def body() -> bytes:
        return page(Request("GET", "/metrics", {})).body

    job.run_once()
    monkeypatch.setattr(metrics, "HEALTH_SECONDS", 60)
    first = body()
    assert body() is first
    job.run_once()
    second = body()
    assert second is not first
    assert second == first, "the agent's own health is as old"
    monkeypatch.setattr(metrics, "HEALTH_SECONDS", 0)
    assert body() != first


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
