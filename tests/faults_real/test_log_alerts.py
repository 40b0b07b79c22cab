"""A rank is killed for lack of memory, and another logs an error first: Prometheus names both."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.prometheus import arguments, write_config
from stagewatch.demo.stack import free_port
from stagewatch.prometheus.api import Alert, PrometheusApi
from stagewatch_lab.rl import memory_limit
from stagewatch_lab.rl.memory_limit import MemoryLimit
from tests.faults_real.agent import Agent
from tests.ranks.fakes import program
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
HOG = """
import os, sys
os.environ |= {"STAGEWATCH_DIR": sys.argv[1], "STAGEWATCH_JOB_ID": "540", "RANK": "8"}
import stagewatch
stagewatch.init(role="rollout")
with stagewatch.stage("rollout", step=1):
    print("ready")
    sys.stdin.readline()
    held = []
    while True:
        held.append(bytearray(os.urandom(1) * (4 << 20)))
"""


class Node:
    """An agent that reads the kernel log and the logs of ranks, and a Prometheus with the rules."""

    def __init__(self, children: Children, directory: Path) -> None:
        self.ranks, self.logs = directory / "ranks", directory / "logs"
        self.ranks.mkdir()
        self.logs.mkdir()
        self.agent = Agent(
            children,
            directory,
            f"--collector.kmsg.state-file={directory / 'kmsg.json'}",
            f"--collector.logs.files={self.logs}/{{job_id}}_{{role}}_{{rank}}.log",
        )
        config = write_config(directory, {"n1": f"127.0.0.1:{self.agent.port}"})
        port = free_port()
        children.start(arguments(["prometheus"], config, port), log=directory / "prometheus.log")
        self.api = PrometheusApi(f"http://127.0.0.1:{port}")
        wait_for(self.api.ready, "Prometheus is ready")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Children() as children:
        node = Node(children, tmp_path_factory.mktemp("node"))
        yield node
        node.api.close()


def fired(api: PrometheusApi, name: str) -> Alert:
    """The one alert of that name, once it fires; its group is evaluated every 15 seconds."""

    def found() -> Alert | None:
        return next((alert for alert in api.alerts() if alert.labels["alertname"] == name), None)

    return wait_for(found, f"{name} fires", limit=180)


def labelled(alert: Alert, **labels: str) -> bool:
    return labels.items() <= alert.labels.items()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs to read /dev/kmsg")
def test_the_rank_that_the_oom_killer_hit_is_alerted_by_name(node: Node) -> None:
    if reason := memory_limit.missing():
        pytest.skip(f"a memory cgroup: {reason}")
    rank = {"job_id": "540", "role": "rollout", "rank": "8"}
    with (
        closing(MemoryLimit(f"stagewatch-test-{os.getpid()}", 128 << 20)) as group,
        program(HOG, str(node.ranks), prefix=group.wrapper) as hog,
    ):
        assert hog.hear() == "ready"
        wait_for(lambda: node.agent.value("rl_rank_up", **rank) == 1, "the agent knows the rank")
        hog.say("grow")
        assert hog.wait() == -9
    assert labelled(fired(node.api, "OutOfMemoryKill"), node="n1", scope="cgroup", **rank)


def test_the_rank_whose_log_had_an_error_first_is_alerted(node: Node) -> None:
    names = [f"train_{number}" for number in range(8)] + ["controller_0"]
    for name in names:
        (node.logs / f"540_{name}.log").write_text("started\n")
    watched = {"job_id": "540", "role": "controller", "rank": "0"}
    wait_for(
        lambda: node.agent.value("log_matches_total", pattern="request_timeout", **watched) == 0,
        "the logs to be watched",
    )
    now = time.time()
    for name, ago, line in (
        ("controller_0", 5, "Error stopping job: Request timeout"),
        ("train_5", 35, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.0 GiB"),
        ("train_2", 10, "collective operation timeout: WorkNCCL(SeqNum=220)"),
    ):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - ago))
        with (node.logs / f"540_{name}.log").open("a") as file:
            file.write(f"{stamp} {line}\n")
    alert = fired(node.api, "LogFirstError")
    assert labelled(alert, job_id="540", role="train", rank="5", pattern="cuda_oom")
