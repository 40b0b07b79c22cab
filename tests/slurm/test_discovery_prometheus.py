"""A real Prometheus takes its targets from the agent."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from stagewatch.core.runner import Runner
from stagewatch.slurm.discovery import Discovery, Exporter
from stagewatch.web.agent_server import AgentServer
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import environment, free_ports
from tests.slurm.scene import NODES
from tests.waiting import wait_for

CONFIG = """
scrape_configs:
  - job_name: nodes
    http_sd_configs: [{url: "http://127.0.0.1:%(agent)d/sd/stagewatch", refresh_interval: 1s}]
    relabel_configs:
      - {source_labels: [__meta_slurm_flags], regex: ".*,POWERED_DOWN,.*", action: drop}
      - {source_labels: [__meta_slurm_gpu_types], regex: ",([^,]+),", target_label: gpu_type}
  - job_name: all
    http_sd_configs: [{url: "http://127.0.0.1:%(agent)d/sd/dcgm", refresh_interval: 1s}]
"""


class Prometheus:
    """A Prometheus that scrapes what it is told to."""

    def __init__(self, keeper: Keeper, directory: Path, config: str) -> None:
        (directory / "prometheus.yml").write_text(config)
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1/targets?state=active"
        keeper.spawn(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            env=environment(),
            log=directory / "prometheus.log",
            cwd=directory,
        )

    def targets(self, job: str) -> dict[str, dict[str, str]]:
        """The labels of a job's targets, by address; none while it starts."""
        try:
            answer = requests.get(self._url, timeout=10)
        except requests.ConnectionError:
            return {}
        if not answer.ok:
            return {}
        active: Any = answer.json()["data"]["activeTargets"]
        return {
            each["labels"]["instance"]: each["labels"]
            for each in active
            if each["labels"]["job"] == job
        }


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    """Ends Prometheus with the test."""
    with Keeper() as keeper:
        yield keeper


def test_prometheus_keeps_its_targets_while_there_is_no_list(
    keeper: Keeper, tmp_path: Path
) -> None:
    """Labels and relabelling as meant; an agent that knows nothing takes no target away."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    nodes = NODES.items
    exporters = (Exporter("stagewatch", 9947), Exporter("dcgm", 9400))
    discovery = Discovery(exporters, cluster="big")
    discovery.update(nodes)
    current = [discovery]
    routes = {
        path: lambda path=path: current[0].routes()[path]()
        for path in ("/sd/stagewatch", "/sd/dcgm")
    }
    server = AgentServer(("127.0.0.1", 0), Runner([]), node="sd", routes=routes)
    server.start()
    try:
        config = CONFIG % {"agent": server.port}
        prometheus = Prometheus(keeper, tmp_path, config)
        found = wait_for(lambda: prometheus.targets("nodes"), "targets by HTTP")
        assert set(found) == {"10.0.0.1:9947", "n2:9947", "n3:9947", "n4:9947"}
        assert found["n2:9947"] == {
            "cluster": "big",
            "gpu_type": "h200",
            "instance": "n2:9947",
            "job": "nodes",
            "node": "n2",
        }
        every = wait_for(lambda: prometheus.targets("all"), "targets of the other exporter")
        assert set(every) == {"10.0.0.1:9400", "n2:9400", "n3:9400", "n4:9400", "n5:9400"}

        asked = threading.Event()

        class Empty(Discovery):
            def routes(self) -> Any:
                asked.set()
                return super().routes()

        current[0] = Empty(exporters)
        wait_for(asked.is_set, "Prometheus to ask again, and to be refused")
        asked.clear()
        wait_for(asked.is_set, "Prometheus to ask once more")
        assert set(prometheus.targets("nodes")) == set(found)

        grown = (*nodes, replace(nodes[0], name="n6", address="n6"))
        discovery.update(grown)
        current[0] = discovery
        wait_for(lambda: "n6:9947" in prometheus.targets("nodes"), "the new node")
    finally:
        server.close()
