"""The processes of one job: where each runs, its wrapper and its output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagewatch.core.processes import Children
from stagewatch_lab.rl import controller_log
from stagewatch_lab.rl.addresses import AddressBook
from stagewatch_lab.rl.device import Device
from stagewatch_lab.rl.plan import Plan


@dataclass(frozen=True, slots=True)
class Place:
    """A node: the directories of its ranks' records and devices, and its environment."""

    name: str
    records: Path
    faults: Path
    devices: Path


@dataclass
class RlJob:
    """One job over some nodes.

    `wrappers` are commands that run a worker, by its name (as `train-5`); `around` runs all.
    `hosts` are the addresses that workers listen at, and `metas` the names under which they find
    the MetaServer, if they differ from the usual ones.
    """

    plan: Plan
    places: Sequence[Place]
    logs: Path
    children: Children
    first_device: int = 0
    around: Sequence[str] = ()
    wrappers: dict[str, Sequence[str]] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    metas: dict[str, str] = field(default_factory=dict)
    meta_hosts: dict[str, str] = field(default_factory=lambda: {"metaserver": "127.0.0.1"})
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start all processes; the controller waits for the others to listen."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.plan.save()
        self.book = AddressBook(self.plan.directory)
        self._run("scheduler-0", "scheduler")
        meta = [f"{name}={host}" for name, host in self.meta_hosts.items()]
        self._run("metaserver-0", "meta_server", *meta)
        for rank in range(self.plan.trains):
            name = f"train-{rank}"
            host = self.hosts.get(name, "127.0.0.1")
            self._run(
                name,
                "train_worker",
                *(str(rank), host, self.metas.get(name, "metaserver")),
                *(str(self.device_file(rank)), self.uuid(rank)),
            )
        for rank in range(self.plan.rollouts):
            self._run(
                f"rollout-{rank}",
                "rollout_worker",
                *(str(rank), str(self.device_file(rank)), self.uuid(rank)),
            )
        self._run("controller-0", "controller")

    def place(self, name: str) -> Place:
        """The node of a worker; train and rollout workers of one number share a device."""
        role, _, rank = name.partition("-")
        if role not in ("train", "rollout"):
            return self.places[0]
        widest = max(self.plan.trains, self.plan.rollouts)
        return self.places[int(rank) * len(self.places) // widest]

    def device_file(self, rank: int) -> Path:
        """The account of the device that workers of this number share."""
        return self.place(f"train-{rank}").devices / str(self.first_device + rank)

    def device(self, rank: int) -> Device:
        """That device."""
        return Device(self.device_file(rank))

    def uuid(self, rank: int) -> str:
        """The device's name."""
        return device_uuid(self.first_device + rank)

    def log_file(self, name: str) -> Path:
        """Where a process writes its log."""
        return self.logs / f"{name.replace('-', '_')}.log"

    def log(self, name: str = "controller-0") -> str:
        """The output of a process so far."""
        with contextlib.suppress(FileNotFoundError):
            return self.log_file(name).read_text(errors="replace")
        return ""

    def steps(self) -> dict[int, float]:
        """The steps that are done, with their seconds."""
        return controller_log.steps_done(self.log())

    def started(self, stage: str, step: int) -> bool:
        """Whether the controller has begun a stage (`train`, `update weights` ...) of a step."""
        return controller_log.started(self.log(), stage, step)

    def over(self) -> bool:
        """Whether the controller has given up and cleaned up."""
        return controller_log.cleaned_up(self.log())

    def stop(self) -> None:
        """Kill all of them."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()

    def environ(self, place: Place) -> Mapping[str, str]:
        """The environment of a process on a node, without variables of our own launcher."""
        launchers = ("SLURM_", "OMPI_", "PMI", "STAGEWATCH_", "TORCHELASTIC_", "RAY_", "PBS_")
        known = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"}
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(launchers) and key not in known
        }
        return kept | {"STAGEWATCH_DIR": str(place.records)}

    def _run(self, name: str, module: str, *arguments: str) -> None:
        program = [sys.executable, "-m", f"stagewatch_lab.rl.{module}"]
        self.processes[name] = self.children.start(
            [
                *(*self.around, *self.wrappers.get(name, ())),
                *(*program, str(self.plan.directory / "plan.json"), *arguments),
            ],
            log=self.log_file(name),
            environ=self.environ(self.place(name)),
        )


def device_uuid(number: int) -> str:
    """The name of a stand-in device, in NVML's form."""
    return f"GPU-57a9d000-0000-4000-8000-{number:012d}"
