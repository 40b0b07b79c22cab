"""The Slurm agent asks a real Prometheus which jobs hang."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.findings import Findings
from stagewatch.core.processes import Children
from stagewatch.demo.prometheus import arguments, write_config
from stagewatch.demo.stack import free_port
from stagewatch.inspect.cluster_stalls import StallsCollector, StallsOptions
from stagewatch.prometheus.api import PrometheusApi
from tests.waiting import wait_for

RANKS = (
    "".join(f'rl_rank_up{{job_id="540",role="train",rank="{rank}"}} 1\n' for rank in range(4))
    + 'rl_rank_up{job_id="541",role="train",rank="0"} 1\n'
)
HANGS = """\
job:rl_stall:active{job_id="540",role="train"} 4
job:rl_stall:culprit{job_id="540",role="train",rank="2",pid="77",evidence="left_loop_early"} 1
rl_rank_stack_frame_info{job_id="540",role="train",rank="2",frame="fit.py:212 in finish"} 1
"""


class Node(ThreadingHTTPServer):
    """Serves these series as a node agent does."""

    text = RANKS

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.server.text.encode()  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass


@pytest.fixture
def node() -> Iterator[Node]:
    with Node(("127.0.0.1", 0), Node.Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def prometheus(node: Node, children: Children, tmp_path: Path) -> PrometheusApi:
    installed = shutil.which("prometheus")
    if installed is None:
        pytest.skip("needs Prometheus on the PATH")
    port = free_port()
    config = write_config(tmp_path, {"gpu-0041": f"127.0.0.1:{node.server_port}"})
    children.start(arguments([installed], config, port), log=tmp_path / "prometheus.log")
    api = PrometheusApi(f"http://127.0.0.1:{port}")
    wait_for(lambda: api.ready() and bool(api.query("rl_rank_up")), "Prometheus has the ranks")
    return api


def test_a_job_that_hangs_is_told_with_its_culprit_and_the_page_of_its_node(
    prometheus: PrometheusApi, node: Node
) -> None:
    findings = Findings()
    collector = StallsCollector(StallsOptions(url=prometheus._url), findings, "")
    collector.collect()
    assert findings.latest() == ()

    node.text = RANKS + HANGS
    wait_for(lambda: bool(prometheus.query("job:rl_stall:active")), "the stall is scraped")
    collector.collect()
    (one,) = findings.latest() or ()
    assert one.headline.startswith("Job 540 hangs. Culprit: rank 2 (train), pid 77 on gpu-0041")
    assert "fit.py:212 in finish" in one.headline
    assert one.links == (("gpu-0041", f"http://127.0.0.1:{node.server_port}/"),)

    node.text = RANKS
    wait_for(lambda: not prometheus.query("job:rl_stall:active"), "the stall is over")
    collector.collect()
    assert findings.latest() == ()


def test_another_clusters_jobs_are_left_out(prometheus: PrometheusApi, node: Node) -> None:
    node.text = RANKS + HANGS
    wait_for(lambda: bool(prometheus.query("job:rl_stall:active")), "the stall is scraped")
    findings = Findings()
    StallsCollector(StallsOptions(url=prometheus._url), findings, "elsewhere").collect()
    assert findings.latest() == ()


def test_without_a_server_there_is_nothing_and_with_a_dead_one_a_line() -> None:
    with pytest.raises(NoData, match="no --prometheus"):
        StallsCollector(StallsOptions(), Findings(), "").collect()
    dead = StallsOptions(url=f"http://127.0.0.1:{free_port()}")
    findings = Findings()
    with pytest.raises(SourceError, match="does not answer"):
        StallsCollector(dead, findings, "").collect()
    assert findings.latest() is None
