"""From four real ranks, one of them slow, to the alert's text: client, agent, rules, Prometheus."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.errors import StagewatchError
from stagewatch.demo.prometheus import arguments, judge_command, prometheus_command, write_config
from stagewatch.demo.stack import Stack, free_port, only
from stagewatch.prometheus.api import PrometheusApi
from tests.running import clean_environ
from tests.waiting import wait_for

NODE = "node-a"
JOB = """
import multiprocessing, sys, time
import stagewatch

def rank(number, barrier):
    stagewatch.init("train", job_id="slow-540", rank=number, world_size=4)
    step = 0
    while True:
        step += 1
        with stagewatch.stage("train", step=step):
            time.sleep(0.3 if number == 2 else 0.2)
            with stagewatch.collective("world", op="all_reduce", size=4):
                barrier.wait()

context = multiprocessing.get_context("fork")
barrier = context.Barrier(4)
ranks = [context.Process(target=rank, args=(n, barrier), daemon=True) for n in range(4)]
for one in ranks:
    one.start()
sys.stdin.read()  # the ranks end with this process, and it with the test
"""


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusApi]:
    """One that has the shipped rules, looked at every 2 s, a node's agent with the job, a judge."""
    try:
        stack = Stack(cache=tmp_path / "cache", nodes=[NODE])
    except StagewatchError as error:
        pytest.skip(f"needs prometheus: {error}")
    try:
        stack.start_agent(NODE, *only({"stages"}))
        judge = f"127.0.0.1:{free_port()}"
        config = write_config(stack.directory, stack.agents, judge)
        rules = stack.directory / "rules" / "slow.rules.yaml"
        rules.write_text(rules.read_text().replace("interval: 15s", "interval: 2s"))
        port = free_port()
        command = arguments(prometheus_command(tmp_path / "cache"), config, port)
        stack.children.start(command, log=stack.directory / "prometheus.log")
        url = f"http://127.0.0.1:{port}"
        stack.children.start(
            [*judge_command(judge, url, stack.directory), "--collector.slow.interval=2s"],
            log=stack.directory / "judge.log",
        )
        environ = clean_environ({"STAGEWATCH_DIR": str(stack.record_dir(NODE))})
        job = subprocess.Popen([sys.executable, "-c", JOB], stdin=subprocess.PIPE, env=environ)
        with job, closing(PrometheusApi(url)) as api:
            wait_for(api.ready, "Prometheus answers", 60)
            yield api
    finally:
        stack.stop()


def test_the_alert_names_the_slow_rank_and_no_other(prometheus: PrometheusApi) -> None:
    def told() -> list[str]:
        return [
            alert.annotations["description"]
            for alert in prometheus.alerts()
            if alert.labels["alertname"] in ("SlowRank", "SlowNode", "SlownessRotates", "JobSlow")
        ]

    wait_for(lambda: any("works 1." in text for text in told()), "the alert", 240)
    (text,) = told()
    assert text.startswith(f"Job slow-540 (train): rank 2 on {NODE} works 1.")
    waited = "sum by (rank) (rl_rank_waited_seconds_total)"
    (least, *_) = sorted(prometheus.query(waited), key=lambda series: series.value)
    assert least.labels["rank"] == "2"
