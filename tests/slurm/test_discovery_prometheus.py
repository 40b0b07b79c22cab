"""A real Prometheus takes its targets from the agent."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from stagewatch.core.processes import Children
from stagewatch.core.runner import Runner
from stagewatch.slurm.discovery import Discovery, Exporter
from stagewatch.web.agent_server import AgentServer
from tests.deploy.store import Prometheus
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


def targets(prometheus: Prometheus, job: str) -> dict[str, dict[str, str]]:
    """The labels of a job's targets, by address."""
    active = prometheus.ask("/api/v1/targets", state="active")["activeTargets"]
    labels = [each["labels"] for each in active]
    return {each["instance"]: each for each in labels if each["job"] == job}


def test_prometheus_keeps_its_targets_while_there_is_no_list(
    children: Children, tmp_path: Path
) -> None:
    """Labels and relabelling as meant; an agent that knows nothing takes no target away."""
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
        prometheus = Prometheus(children, tmp_path / "prometheus", config)
        found = wait_for(lambda: targets(prometheus, "nodes"), "targets by HTTP")
        assert set(found) == {"10.0.0.1:9947", "n2:9947", "n3:9947", "n4:9947"}
        assert found["n2:9947"] == {
            "cluster": "big",
            "gpu_type": "h200",
            "instance": "n2:9947",
            "job": "nodes",
            "node": "n2",
        }
        every = wait_for(lambda: targets(prometheus, "all"), "targets of the other exporter")
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
        assert set(targets(prometheus, "nodes")) == set(found)

        grown = (*nodes, replace(nodes[0], name="n6", address="n6"))
        discovery.update(grown)
        current[0] = discovery
        wait_for(lambda: "n6:9947" in targets(prometheus, "nodes"), "the new node")
    finally:
        server.close()
