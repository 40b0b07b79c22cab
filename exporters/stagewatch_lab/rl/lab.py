"""The stack around RL jobs; its agents see records, devices, checkpoints and logs of each job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from stagewatch.demo.stack import Stack
from stagewatch.prometheus.api import PrometheusApi
from stagewatch_lab.rl import storage
from stagewatch_lab.rl.gpu_readings import write
from stagewatch_lab.rl.job import Place, RlJob
from stagewatch_lab.rl.plan import Plan
from stagewatch_lab.rl.storage import MountNamespace, SmallTmpfs

NODES = ("node-a", "node-b")


class RlLab(Stack):
    """Nodes and any number of jobs on them, each with a file system for its checkpoints."""

    def __init__(self, *, cache: Path, nodes: Sequence[str] = NODES) -> None:
        super().__init__(cache=cache, nodes=nodes)
        self.jobs: list[RlJob] = []
        self.storages: dict[str, SmallTmpfs] = {}
        """The checkpoints' file system of each job, where mounts can be made."""
        self._namespace = None if storage.missing() else MountNamespace(self.children)

    def start(self) -> PrometheusApi:
        """Start the agents of the jobs made so far, and wait until Prometheus answers."""
        for node in self.nodes:
            devices, recording = self._devices(node), self.directory / node / "gpus.jsonl"
            devices.mkdir()
            write(devices, recording)
            module = [sys.executable, "-m", "stagewatch_lab.rl.gpu_readings"]
            log = self.directory / f"{node}-gpus.log"
            self.children.start([*module, str(devices), str(recording)], log=log)
            self.start_agent(node, *self._flags(node, recording), around=self._around)
        return self.start_prometheus()

    def job(
        self,
        job_id: str,
        *,
        trains: int = 8,
        rollouts: int = 4,
        samples: int = 100,
        cpu_share: float = 0.05,
        pace: float = 60.0,
    ) -> RlJob:
        """A new job with devices of its own, not yet started; call it before `start`."""
        directory = self.directory / "jobs" / job_id
        checkpoints = self._checkpoints / job_id
        for each in (directory, checkpoints):
            each.mkdir(parents=True)
        if self._namespace is not None:
            self.storages[job_id] = SmallTmpfs(self._namespace, checkpoints)
        plan = Plan(
            job_id=job_id,
            directory=directory,
            checkpoints=checkpoints,
            trains=trains,
            rollouts=rollouts,
            samples=samples,
            cpu_share=cpu_share,
            pace=pace,
        )
        places = [
            Place(node, self.record_dir(node), self.fault_dir(node), self._devices(node))
            for node in self.nodes
        ]
        taken = sum(max(job.plan.trains, job.plan.rollouts) for job in self.jobs)
        job = RlJob(
            plan,
            places,
            self._logs / job_id,
            self.children,
            first_device=taken,
            around=self._around,
        )
        self.jobs.append(job)
        return job

    @property
    def _around(self) -> Sequence[str]:
        """The prefix for a command that must see the checkpoints."""
        return self._namespace.around if self._namespace else ()

    @property
    def _checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def _logs(self) -> Path:
        return self.directory / "logs"

    def _devices(self, node: str) -> Path:
        return self.directory / node / "devices"

    def _flags(self, node: str, recording: Path) -> list[str]:
        return [
            *("--collector.gpu.recording", str(recording)),
            *(
                "--collector.canary.mounts",
                ",".join(str(job.plan.checkpoints) for job in self.jobs),
            ),
            *("--collector.canary.every", "5s", "--collector.canary.floor", "1"),
            *("--collector.canary.large-bytes", "0"),
            *("--collector.checkpoints.directories", f"{self._checkpoints}/{{job}}"),
            *("--collector.checkpoints.every", "5s"),
            *("--collector.logs.files", f"{self._logs}/{{job_id}}/{{role}}_{{rank}}.log"),
        ]
