"""Where shapes are played: a Prometheus with the shipped rules, and agents of some nodes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from stagewatch.demo.stack import Stack, free_port, only
from stagewatch.prometheus.api import PrometheusApi
from tests.fakes.faultfs import FaultFs, build
from tests.hangbench.device import NodeGpus
from tests.running import clean_environ
from tests.waiting import becomes

SHARED = ("node-0", "node-1")
"""Nodes of any number of jobs.  The first one's agent also looks for ranks without a record."""
OWN = ("node-2", "node-3")
"""Nodes of one job at a time, which may meddle with the agents."""
COLLECTORS = (
    *("stages", "ranks", "work", "rank_io", "processes", "blocked_tasks", "incidents", "net"),
    "gpu",
)
_GPUS_SECONDS = 1.0


class Field:
    """Agents and a Prometheus, or only directories for a rehearsal."""

    def __init__(self, watched: bool, nodes: tuple[str, ...] = SHARED + OWN) -> None:
        self._stack = Stack(cache=Path.home() / ".cache" / "stagewatch", nodes=nodes)
        self._watched = watched
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._faultfs: Path | None = None
        self.directory = self._stack.directory
        self.children = self._stack.children
        self.api: PrometheusApi | None = None
        self.gpus = {node: NodeGpus(node, self._recording(node)) for node in nodes}
        self._ended = threading.Event()
        self._writer = threading.Thread(target=self._write_gpus)

    def __enter__(self) -> Field:
        try:
            if self._watched:
                self._writer.start()
                for node in self.gpus:
                    self._stack.agents[node] = f"127.0.0.1:{free_port()}"
                    self.start_agent(node)
                self.api = self._stack.start_prometheus()
                becomes(lambda: len(self.query("up == 1")) == len(self.gpus) + 1, 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watched:
            self._writer.join()
        self._stack.stop()

    @property
    def url(self) -> str:
        """Of Prometheus."""
        return self._stack.url

    @property
    def agents(self) -> dict[str, str]:
        """Address of the agent of each node."""
        return self._stack.agents

    def query(self, expression: str) -> list[object]:
        """What Prometheus answers; nothing in a rehearsal."""
        return list(self.api.query(expression)) if self.api else []

    def record_dir(self, node: str) -> Path:
        """Where the ranks of a node keep their records."""
        return self._stack.record_dir(node)

    def incident_dir(self, node: str) -> Path:
        """Where the agent of a node keeps incidents."""
        return self.directory / f"{node}-incidents"

    def _recording(self, node: str) -> Path:
        """What the agent of a node reads of its GPUs."""
        return self.directory / node / "gpus.jsonl"

    def _write_gpus(self) -> None:
        """Tell the agents, once a second, what GPUs do, also while a job is begun or judged."""
        while not self._ended.wait(_GPUS_SECONDS):
            for gpus in self.gpus.values():
                gpus.write()

    def start_agent(self, node: str) -> None:
        """Start the agent of a node, at the address that it always has."""
        if not self._watched or (node in self._processes and self._processes[node].poll() is None):
            return
        looks = "--ranks-by-environment" if node == SHARED[0] else "--no-ranks-by-environment"
        self._processes[node] = self.children.start(
            [
                *(sys.executable, "-m", "stagewatch.cli", "node", "--node-name", node),
                *("--listen", self._stack.agents[node], looks),
                *("--record-dir", str(self.record_dir(node))),
                *("--fault-dir", str(self._stack.fault_dir(node))),
                *("--collector.incidents.dir", str(self.incident_dir(node))),
                *("--collector.gpu.recording", str(self._recording(node))),
                *only(COLLECTORS),
            ],
            log=self.directory / f"{node}.log",
            environ=clean_environ({}),
        )

    def end_agent(self, node: str) -> None:
        """Kill the agent of a node."""
        if node in self._processes:
            self._processes[node].kill()
            self._processes[node].wait()

    def mount(self, directory: Path) -> FaultFs:
        """A file system in user space, with its control, in a directory of a job."""
        if self._faultfs is None:
            self._faultfs = build(self.directory)
        return FaultFs(self._faultfs, directory)
