"""Runs what watches a demo: node agents and a Prometheus with the shipped rules, on one machine."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from stagewatch.core.errors import StagewatchError
from stagewatch.core.processes import Children
from stagewatch.demo.prometheus import (
    arguments,
    judge_command,
    prometheus_command,
    write_config,
)
from stagewatch.faults.markers import Marker, write_marker
from stagewatch.prometheus.api import PrometheusApi

JANITOR = 'cat; for _ in $(seq 300); do rm -rf "$0" && break; sleep 0.1; done'
"""Removes a directory once its input ends, which comes when the demo ends in whatever way; also one
to which processes still write as they end."""


class Stack:
    """Agents of some nodes, a Prometheus, and the judge of its jobs.

    `stop` also ends what was started as one of its `children` and removes its `directory`.
    """

    def __init__(self, *, cache: Path, nodes: Sequence[str]) -> None:
        self._prometheus = prometheus_command(cache)  # first: without it nothing is begun
        self.directory = Path(tempfile.mkdtemp(prefix="stagewatch-demo-"))
        self.nodes = tuple(nodes)
        self.agents: dict[str, str] = {}
        """Address of each agent."""
        self.children = Children()
        self._janitor = subprocess.Popen(
            ["sh", "-c", JANITOR, self.directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for node in nodes:
            for directory in (self.record_dir(node), self.fault_dir(node)):
                directory.mkdir(parents=True)

    def start_agent(self, node: str, *flags: str, around: Sequence[str] = ()) -> None:
        """Start a node's agent; `around` is a command that runs it."""
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "stagewatch.cli", "node", "--listen", address]
        command += ["--node-name", node]
        command += ["--record-dir", str(self.record_dir(node))]
        command += ["--fault-dir", str(self.fault_dir(node))]
        command += ["--no-ranks-by-environment"]  # those would be of all nodes, and of others' jobs
        command += _kept_in(self.directory / node)
        self.children.start([*around, *command, *flags], log=self.directory / f"{node}.log")
        self.agents[node] = address

    def start_prometheus(self) -> PrometheusApi:
        """Start Prometheus over the agents, and the judge over it; wait until it answers."""
        self.judge = f"127.0.0.1:{free_port()}"
        config = write_config(self.directory, self.agents, self.judge)
        port = free_port()
        self.children.start(
            arguments(self._prometheus, config, port), log=self.directory / "prometheus.log"
        )
        self.url = f"http://127.0.0.1:{port}"
        self.children.start(
            judge_command(self.judge, self.url, self.directory), log=self.directory / "judge.log"
        )
        api = PrometheusApi(self.url)
        if not wait_for(api.ready, 60):
            raise StagewatchError(f"Prometheus did not start: {self._last_line('prometheus.log')}")
        return api

    def mark(self, marker: Marker) -> None:
        """Write or replace a fault's marker on every node."""
        for node in self.nodes:
            write_marker(self.fault_dir(node), marker)

    def record_dir(self, node: str) -> Path:
        """The directory of the records of a node's ranks."""
        return self.directory / node / "ranks"

    def options(self, node: str) -> dict[str, str]:
        """Where a node's commands look, by command."""
        records = f"--record-dir {self.record_dir(node)}"
        return {
            "inspect": f"{records} --incident-dir {self.directory / node / 'incidents'}",
            "fault": f"{records} --fault-dir {self.fault_dir(node)} "
            f"--undo-dir {self.directory / node / 'undo'}",
        }

    def fault_dir(self, node: str) -> Path:
        """The directory of a node's fault markers."""
        return self.directory / node / "faults"

    def stop(self) -> None:
        """End every process and remove every file."""
        self.children.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._janitor.stdin:
            self._janitor.stdin.close()
        self._janitor.wait()

    def _last_line(self, log: str) -> str:
        with contextlib.suppress(OSError, IndexError):
            return (self.directory / log).read_text(errors="replace").splitlines()[-1]
        return "it wrote nothing"


def _kept_in(directory: Path) -> list[str]:
    """Flags that keep what an agent reads and writes of its own away from an installed agent's."""
    return [
        *("--collector.incidents.dir", str(directory / "incidents")),
        *("--collector.kmsg.state-file", str(directory / "kmsg.json")),
        *("--collector.gpu.release-file", str(directory / "release-gpu")),
        *("--collector.gpu-jobs.prolog-dir", str(directory / "jobs")),
        *("--collector.nccl-inspector.dir", str(directory / "nccl")),
    ]


def only(wanted: Collection[str]) -> list[str]:
    """Flags that switch off all collectors of a node agent but these."""
    from stagewatch.node import collector_specs

    unwanted = [spec.name for spec in collector_specs() if spec.name not in wanted]
    return [f"--no-collector.{name.replace('_', '-')}.enabled" for name in unwanted]


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], object], seconds: float, pause: float = 0.25) -> bool:
    """Whether the condition becomes true within so many seconds."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(pause)
    return True
