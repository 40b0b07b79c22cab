"""What a scraper sees."""

from __future__ import annotations

import gzip

import pytest

from tests.web.http_helpers import Serve
from tests.web.status_scenes import Hangs, ranks


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
