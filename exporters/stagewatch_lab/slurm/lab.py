"""A Slurm cluster on this machine, watched by the whole stack, with a job that trains on it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path

from stagewatch.core.errors import ConfigError
from stagewatch.demo.stack import Stack, free_port, only
from stagewatch.demo.waiting import Condition, T, TookTooLong
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.rules import INTERVAL_SECONDS, write_rules
from stagewatch_lab.slurm.services import Accounting, Munge, missing
from stagewatch_lab.slurm.training import Checkpoints

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
COLLECTORS = ("stages", "ranks", "faults")
INTERVALS = {
    **{f"collector.slurm-{name}.interval": "1s" for name in ("queue", "nodes")},
    **{f"collector.slurm-{name}.interval": "1s" for name in ("events", "jobs", "controller")},
    "collector.slurm-holdings.interval": "1s",
    "collector.slurm-sources.interval": "500ms",
    **{f"{name}-interval": "1s" for name in ("jobs", "nodes", "accounting", "diagnostics", "ping")},
    "timeout": "2s",
}


class SlurmLab(Stack):
    """Everything that a scenario needs; leaving the context ends and removes it all.

    `interval` is the number of seconds between two evaluations of the rules.
    """

    scrape_seconds = 1

    def __init__(
        self, cache: Path, spec: ClusterSpec = SPEC, *, interval: int = INTERVAL_SECONDS
    ) -> None:
        if why := missing():
            raise ConfigError(why)
        super().__init__(cache=cache, nodes=spec.real_nodes)
        self.keeper = Keeper()
        self._spec = spec
        self._interval = interval

    def stop(self) -> None:
        """End every process and remove every file."""
        self.keeper.close()
        super().stop()

    def begin(self) -> None:
        """Start the cluster, the agents and Prometheus, and wait until all are scraped."""
        self.directory.chmod(0o755)  # jobs of other users read their scripts there
        munge = Munge(self.keeper, self.directory / "munge")
        accounting = Accounting(self.keeper, self.directory / "accounting", munge)
        self.slurm = SlurmCluster(
            self.keeper, self.directory / "slurm", self._spec, munge, accounting
        )
        self.slurm.start()
        self._path = os.pathsep.join(filter(None, sys.path))
        self.service_environ = {**self.slurm.env, "PYTHONPATH": self._path}
        for node in self.nodes:
            self.start_node(node)
        self.slurm_agent = f"127.0.0.1:{free_port()}"
        self.start_service(
            "slurm",
            *(sys.executable, "-m", "stagewatch.cli", "slurm", f"--listen={self.slurm_agent}"),
            f"--state-dir={self.directory / 'state'}",
            *(f"--{key}={value}" for key, value in INTERVALS.items()),
        )
        write_rules(self.directory / "rules", self._interval)
        self.api = self.start_prometheus()
        everything = len(self.nodes) + 2
        self.wait(lambda: len(self.api.query("up == 1")) == everything, "every agent to be scraped")

    def start_node(self, node: str) -> None:
        """Start the agent of a node."""
        flags = only(COLLECTORS)
        if node == self.nodes[0]:  # the nodes share the directory: one looks
            watched = f"{self.directory}/jobs/{{job}}/checkpoints"
            flags = only((*COLLECTORS, "checkpoints"))
            flags += ["--collector.checkpoints.directories", watched]
            flags += ["--collector.checkpoints.every", "2s"]
        self.start_agent(node, *flags)

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
                f"--export=ALL,PYTHONPATH={self._path}",
            ),
            script=script,
        )

    def checkpoints(self, job: str) -> Checkpoints:
        """The checkpoints of a training job."""
        return Checkpoints(self.directory / "jobs" / job / "checkpoints")

    def power_off(self, node: str) -> None:
        """Kill everything on a node at once: slurmd, its steps, the ranks, the agent."""
        slurmd = self.slurm.daemons.pids[f"slurmd-{node}"]
        agent = self.services.pop(node).pid
        for pid in (slurmd, *self.slurm.processes_on(node), agent):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def power_on(self, node: str) -> None:
        """Start a node's daemons anew."""
        self.slurm.start_slurmd(node)
        self.start_node(node)

    def reset(self) -> None:
        """Cancel all jobs, and bring back every node."""
        if not self.slurm.daemons.running("slurmctld"):
            self.slurm.start_controller()
        for node in self.nodes:
            if node not in self.services:
                self.start_node(node)
        self.slurm.empty()

    def nodes_of(self, job: str) -> list[str]:
        """Where a job runs now."""
        names = self.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
        return self.slurm.run("scontrol", "show", "hostnames", names).split() if names else []

    def wait(self, condition: Condition[T], what: str, limit: float = 240.0) -> T:
        """As of any stack; the controller's log goes into the failure."""
        try:
            return super().wait(condition, what, limit)
        except TookTooLong as error:
            raise TookTooLong(f"{error}\n{self.slurm.daemons.log('slurmctld')}") from None
