"""A Slurm cluster on this machine, watched by the whole stack, with a job that trains on it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from stagewatch.core.errors import ConfigError, StagewatchError
from stagewatch.demo.prometheus import arguments, prometheus_command
from stagewatch.demo.stack import only
from stagewatch.prometheus.api import PrometheusApi
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.rules import INTERVAL_SECONDS, write_rules
from stagewatch_lab.slurm.services import Accounting, Munge, free_ports, missing
from stagewatch_lab.slurm.training import Checkpoints
from stagewatch_lab.slurm.waiting import TookTooLong, wait_for

T = TypeVar("T")

NODES = ("n1", "n2", "n3", "n4")
GPUS = 2
"""Of each node; pretended ones."""
RANKS_PER_NODE = 2
TRY_AGAIN = 75
"""Exit status for which this cluster requeues a job (RequeueExit)."""
SRUN_WAIT_SECONDS = 40
"""How long srun lets a step's other tasks live after one has ended."""
SPEC = ClusterSpec(
    nodes=(NodeSpec(NODES, gpus=(("h200", GPUS),)),),
    partitions=("train Nodes=n[1-4] Default=YES DefMemPerCPU=100",),
    name="demo",
    settings=(("RequeueExit", str(TRY_AGAIN)), ("MessageTimeout", "3")),
)
SCRAPE_SECONDS = 1
CONFIG = """\
global: {{scrape_interval: {every}s, scrape_timeout: {every}s, evaluation_interval: {every}s}}
rule_files: ["{rules}/*.rules.yaml"]
scrape_configs:
  - job_name: stagewatch-slurm
    static_configs:
      - {{targets: ["{slurm}"], labels: {{cluster: demo}}}}
  - job_name: stagewatch-judge
    honor_labels: true
    static_configs:
      - {{targets: ["{judge}"]}}
  - job_name: stagewatch
    static_configs:
"""
TARGET = '      - {{targets: ["{address}"], labels: {{cluster: demo, node: {node}}}}}\n'
COLLECTORS = ("stages", "ranks", "faults")
INTERVALS = {
    **{f"collector.slurm-{name}.interval": "1s" for name in ("queue", "nodes")},
    **{f"collector.slurm-{name}.interval": "1s" for name in ("events", "jobs", "controller")},
    "collector.slurm-holdings.interval": "1s",
    "collector.slurm-sources.interval": "500ms",
    **{f"{name}-interval": "1s" for name in ("jobs", "nodes", "accounting", "diagnostics", "ping")},
    "timeout": "2s",
}


class SlurmLab:
    """Everything that a scenario needs; leaving the context ends and removes it all.

    `interval` is the number of seconds between two evaluations of the rules.
    """

    def __init__(
        self, cache: Path, spec: ClusterSpec = SPEC, *, interval: int = INTERVAL_SECONDS
    ) -> None:
        if why := missing():
            raise ConfigError(why)
        self._prometheus = prometheus_command(cache)  # first: without it nothing is begun
        self.keeper = Keeper()
        self._services: dict[str, int] = {}
        self._spec = spec
        self._interval = interval
        self.nodes = spec.real_nodes
        names = (*self.nodes, "slurm", "judge", "prometheus")
        self._addresses = dict(
            zip(names, map("127.0.0.1:{}".format, free_ports(len(names))), strict=True)
        )

    def __enter__(self) -> SlurmLab:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process and remove every file."""
        self.keeper.close()

    def _start(self) -> None:
        self.directory = self.keeper.make_directory("stagewatch-slurm-")
        munge = Munge(self.keeper, self.directory / "munge")
        accounting = Accounting(self.keeper, self.directory / "accounting", munge)
        self.slurm = SlurmCluster(
            self.keeper, self.directory / "slurm", self._spec, munge, accounting
        )
        self.slurm.start()
        self.environ = {**self.slurm.env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for node in self.nodes:
            for name in ("ranks", "faults"):
                (self.directory / node / name).mkdir(parents=True)
            self.start_agent(node)
        self.start_slurm_agent()
        rules = self.directory / "rules"
        write_rules(rules, self._interval)
        targets = [TARGET.format(address=self._addresses[node], node=node) for node in self.nodes]
        head = CONFIG.format(
            every=SCRAPE_SECONDS,
            rules=rules,
            slurm=self._addresses["slurm"],
            judge=self._addresses["judge"],
        )
        self._config = self.directory / "prometheus.yml"
        self._config.write_text(head + "".join(targets))
        self.url = f"http://{self._addresses['prometheus']}"
        self.api = PrometheusApi(self.url, timeout=30)
        self.start_prometheus()

    def start_slurm_agent(self) -> None:
        """Start the agent that asks Slurm."""
        self._spawn(
            "slurm",
            *(f"--listen={self._addresses['slurm']}", f"--state-dir={self.directory / 'state'}"),
            *(f"--{key}={value}" for key, value in INTERVALS.items()),
        )

    def start_prometheus(self) -> None:
        """Start Prometheus and wait until it has scraped every agent."""
        log = self.directory / "prometheus.log"
        port = int(self._addresses["prometheus"].rpartition(":")[2])
        argv = arguments(self._prometheus, self._config, port)
        environ = dict(os.environ)
        self._services["prometheus"] = self.keeper.spawn(
            argv, env=environ, log=log, cwd=self.directory
        )
        if "judge" not in self._services:
            self._spawn(
                "judge",
                *(f"--listen={self._addresses['judge']}", f"--prometheus={self.url}"),
                f"--case-dir={self.directory / 'cases'}",
            )
        self.wait(self.api.ready, "Prometheus to answer")
        everything = len(self.nodes) + 2
        self.wait(lambda: len(self.api.query("up == 1")) == everything, "every agent to be scraped")

    def address(self, name: str) -> str:
        """Where the agent of a node, `slurm` (its agent) or `prometheus` listens: host and port."""
        return self._addresses[name]

    def start_agent(self, node: str) -> None:
        """Start the agent of a node."""
        watched = "--collector.checkpoints.directories"  # the nodes share it: one looks
        shared = (
            [f"{watched}={self.directory}/jobs/{{job}}/checkpoints"]
            if node == self.nodes[0]
            else []
        )
        self._spawn(
            node,
            *(f"--listen={self._addresses[node]}", f"--node-name={node}"),
            "--no-ranks-by-environment",  # those would be of all nodes
            f"--record-dir={self.directory / node / 'ranks'}",
            f"--fault-dir={self.fault_dir(node)}",
            *(*shared, *(["--collector.checkpoints.every=2s"] if shared else [])),
            *only((*COLLECTORS, *(["checkpoints"] if shared else []))),
        )

    def _spawn(self, name: str, *flags: str) -> None:
        command = name if name in ("slurm", "judge") else "node"
        argv = [sys.executable, "-m", "stagewatch.cli", command, *flags]
        log = self.directory / f"agent-{name}.log"
        self._services[name] = self.keeper.spawn(
            argv, env=self.environ, log=log, cwd=self.directory
        )

    def train(self, nodes: int = 2) -> str:
        """Submit the job that trains; returns its id.  It requeues itself when a rank dies."""
        place = f"{self.directory}/jobs/$SLURM_JOB_ID"
        rank = (
            f'STAGEWATCH_DIR={self.directory}/"$SLURMD_NODENAME"/ranks '
            f"exec {sys.executable} -m stagewatch_lab.slurm.training {place}"
        )
        script = (
            f"mkdir -p {place}/checkpoints\n"
            f"srun --wait={SRUN_WAIT_SECONDS} sh -c {shlex.quote(rank)}\n"
            f"exit {TRY_AGAIN}\n"
        )
        return self.slurm.submit(
            *("-N", str(nodes), f"--ntasks-per-node={RANKS_PER_NODE}", f"--gres=gpu:h200:{GPUS}"),
            *(
                "--requeue",
                "--job-name=train",
                f"--export=ALL,PYTHONPATH={self.environ['PYTHONPATH']}",
            ),
            script=script,
        )

    def fault_dir(self, node: str) -> Path:
        """Where a node's fault markers are."""
        return self.directory / node / "faults"

    def checkpoints(self, job: str) -> Checkpoints:
        """The checkpoints of a training job."""
        return Checkpoints(self.directory / "jobs" / job / "checkpoints")

    def power_off(self, node: str) -> None:
        """Kill everything on a node at once: slurmd, its steps, the ranks, the agent."""
        slurmd = self.slurm.daemons.pids[f"slurmd-{node}"]
        for pid in (slurmd, *self.slurm.processes_on(node), self._services.pop(node)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def power_on(self, node: str) -> None:
        """Start a node's daemons anew."""
        self.slurm.start_slurmd(node)
        self.start_agent(node)

    def reset(self) -> None:
        """Cancel all jobs, and bring back every node."""
        if not self.slurm.daemons.running("slurmctld"):
            self.slurm.start_controller()
        for node in self.nodes:
            if node not in self._services:
                self.start_agent(node)
        self.slurm.empty()

    def nodes_of(self, job: str) -> list[str]:
        """Where a job runs now."""
        names = self.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
        return self.slurm.run("scontrol", "show", "hostnames", names).split() if names else []

    def wait(
        self, condition: Callable[[], T | Literal[False] | None], what: str, limit: float = 120.0
    ) -> T:
        """Wait until Prometheus shows something; fails early if a service has ended."""

        def asked() -> T | Literal[False] | None:
            for name, pid in self._services.items():
                if self.keeper.status(pid) is not None:
                    raise StagewatchError(f"{name} has ended: {self._last_words(name)}")
            return condition()

        try:
            return wait_for(asked, what, limit, pause=0.25)
        except TookTooLong as error:
            raise TookTooLong(f"{error}\n{self.slurm.daemons.log('slurmctld')}") from None

    def _last_words(self, name: str) -> str:
        for log in (f"agent-{name}.log", f"{name}.log"):
            with contextlib.suppress(OSError):
                return (self.directory / log).read_text(errors="replace")[-1000:]
        return "it wrote nothing"
