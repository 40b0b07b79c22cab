"""A job of four real ranks, one of them slow, and what watches it: agent, rules, Prometheus."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
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

{prepare}

def rank(number, barrier):
    stagewatch.init("train", job_id="slow-540", rank=number, world_size=4)
    prepare(number)
    step = 0
    while True:
        step += 1
        with stagewatch.stage("train", step=step):
            time.sleep(0.2)
            work(number)
            with stagewatch.collective("world", op="all_reduce", size=4):
                barrier.wait()

context = multiprocessing.get_context("fork")
barrier = context.Barrier(4)
ranks = [context.Process(target=rank, args=(n, barrier), daemon=True) for n in range(4)]
for one in ranks:
    one.start()
sys.stdin.read()  # the ranks end with this process, and it with the test
"""


WINDOWS = {"slow": {"interval: 15s": "interval: 2s"}}


@contextmanager
def watched(
    directory: Path,
    collectors: Collection[str],
    shorter: Mapping[str, Mapping[str, str]] = WINDOWS,
) -> Iterator[tuple[Stack, PrometheusApi]]:
    """A node's agent with these collectors, and a Prometheus with the shipped rules.

    `shorter` replaces times in files of rules; by default windows are looked at every 2 s.
    """
    try:
        stack = Stack(cache=directory / "cache", nodes=[NODE])
    except StagewatchError as error:
        pytest.skip(f"needs prometheus: {error}")
    try:
        stack.start_agent(NODE, *only(collectors))
        judge = f"127.0.0.1:{free_port()}"
        config = write_config(stack.directory, stack.agents, judge)
        for name, times in shorter.items():
            rules = stack.directory / "rules" / f"{name}.rules.yaml"
            text = rules.read_text()
            for long, short in times.items():
                assert long in text
                text = text.replace(long, short)
            rules.write_text(text)
        port = free_port()
        command = arguments(prometheus_command(directory / "cache"), config, port)
        stack.children.start(command, log=stack.directory / "prometheus.log")
        url = f"http://127.0.0.1:{port}"
        stack.children.start(
            [*judge_command(judge, url, stack.directory), "--collector.slow.interval=2s"],
            log=stack.directory / "judge.log",
        )
        api = PrometheusApi(url)
        wait_for(api.ready, "Prometheus answers", 60)
        yield stack, api
        api.close()
    finally:
        stack.stop()


@contextmanager
def running(stack: Stack, prepare: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job; `prepare` defines `prepare(number)` and `work(number)`, which a step ends with."""
    environ = clean_environ({"STAGEWATCH_DIR": str(stack.record_dir(NODE))})
    with subprocess.Popen(
        [sys.executable, "-c", JOB.format(prepare=prepare)], stdin=subprocess.PIPE, env=environ
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def texts(api: PrometheusApi) -> list[str]:
    """What the alerts on slowness say that fire."""
    return [
        alert.annotations["description"]
        for alert in api.alerts()
        if alert.labels["alertname"] in ("SlowRank", "SlowNode", "SlownessRotates", "JobSlow")
    ]


def told(
    job: subprocess.Popen[bytes], prometheus: PrometheusApi, right: Callable[[str], bool]
) -> list[str]:
    """The texts of the alerts that fire, once one of them is right."""

    def found() -> bool:
        assert job.poll() is None
        return any(map(right, texts(prometheus)))

    wait_for(found, "an alert on slowness with what stands beside it", 240)
    return texts(prometheus)
