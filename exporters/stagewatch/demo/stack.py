"""Runs what watches a demo: node agents and a Prometheus with the shipped rules, on one machine."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from stagewatch.core.errors import StagewatchError
from stagewatch.core.processes import Children
from stagewatch.demo import prometheus
from stagewatch.demo.waiting import Condition, T, wait_for
from stagewatch.faults.markers import Marker, write_marker
from stagewatch.prometheus.api import PrometheusApi

S = TypeVar("S", bound="Stack")

JANITOR = 'cat; for _ in $(seq 300); do rm -rf "$0" && break; sleep 0.1; done'
"""Removes a directory once its input ends, which comes when the demo ends in whatever way; also one
to which processes still write as they end."""


class Stack:
    """Agents of some nodes, a Prometheus, and the judge of its jobs.

    Leaving the context, or `stop`, also ends what was started as one of its `children` and removes
    its `directory`.
    """

    scrape_seconds = prometheus.SCRAPE_SECONDS
    slurm_agent = ""
    """The address of a Slurm agent that is scraped, too."""

    def __init__(self, *, cache: Path, nodes: Sequence[str]) -> None:
        # First: without it nothing is begun.
        self._prometheus = prometheus.prometheus_command(cache)
        self.directory = Path(tempfile.mkdtemp(prefix="stagewatch-demo-"))
        self.nodes = tuple(nodes)
        self.agents: dict[str, str] = {}
        """Address of each agent."""
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        """Agents by their node, `prometheus` and `judge`: all that should not end by itself."""
        self.service_environ: Mapping[str, str] = os.environ
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

    def __enter__(self: S) -> S:
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self) -> None:
        """What entering the context starts: nothing, unless a subclass does."""

    def start_service(self, name: str, *command: str) -> None:
        """Start a process that should not end by itself, its output in NAME.log."""
        log = self.directory / f"{name}.log"
        self.services[name] = self.children.start(command, log=log, environ=self.service_environ)

    def start_agent(self, node: str, *flags: str, around: Sequence[str] = ()) -> None:
        """Start a node's agent, anew at the same address; `around` is a command that runs it."""
        address = self.agents.setdefault(node, f"127.0.0.1:{free_port()}")
        self.start_service(
            node,
            *(*around, sys.executable, "-m", "stagewatch.cli", "node", "--listen", address),
            *("--node-name", node, "--record-dir", str(self.record_dir(node))),
            *("--fault-dir", str(self.fault_dir(node))),
            "--no-ranks-by-environment",  # those would be of all nodes, and of others' jobs
            *(*_kept_in(self.directory / node), *flags),
        )

    def start_prometheus(self) -> PrometheusApi:
        """Start Prometheus over the agents, and the judge over it; wait until it answers."""
        self.judge = f"127.0.0.1:{free_port()}"
        config = prometheus.write_config(
            self.directory,
            self.agents,
            self.judge,
            slurm=self.slurm_agent,
            every=self.scrape_seconds,
        )
        port = free_port()
        self.start_service("prometheus", *prometheus.arguments(self._prometheus, config, port))
        self.url = f"http://127.0.0.1:{port}"
        self.start_service("judge", *prometheus.judge_command(self.judge, self.url, self.directory))
        api = PrometheusApi(self.url, timeout=60)
        self.wait(api.ready, "Prometheus to answer")
        return api

    def wait(self, condition: Condition[T], what: str, limit: float = 240.0) -> T:
        """The condition's first true value.

        Raises `StagewatchError` where a service has ended, and after `limit` seconds.
        """

        def asked() -> T | Literal[False] | None:
            for name, process in self.services.items():
                if process.poll() is not None:
                    raise StagewatchError(f"{name} has ended: {self._last_words(name)}")
            return condition()

        return wait_for(asked, what, limit)

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

    def _last_words(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.directory / f"{name}.log").read_text(errors="replace")[-1000:].strip()
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


def free_ports(count: int) -> list[int]:
    """TCP ports that nothing listens on.

    They lie below those that the kernel gives to connections: a daemon that is killed must find its
    port free when it is started again.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            each = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                port = random.randrange(10_000, below) if below > 11_000 else 0  # noqa: S311
                each.bind(("", port))
                found.append(each.getsockname()[1])
        return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
