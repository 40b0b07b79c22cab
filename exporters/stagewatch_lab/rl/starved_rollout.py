"""S1 #2: a rollout worker is starved of its core, then runs out of memory."""

from __future__ import annotations

import os
import subprocess

from stagewatch.core.errors import StagewatchError
from stagewatch_lab.rl import memory_limit
from stagewatch_lab.rl.job import RlJob
from stagewatch_lab.rl.lab import RlLab
from stagewatch_lab.rl.memory_limit import MemoryLimit
from stagewatch_lab.rl.plan import GIB, MIB
from stagewatch_lab.rl.rollout_worker import MEMORY
from stagewatch_lab.rl.scenario import Scenario, Surface

HOGS = 24
STARVED_SECONDS = 20.0
"""The shortest time with only the core taken; in the next rollout memory is taken too."""
LIMIT = MEMORY + 32 * MIB
LEAK = GIB / 1000
"""Bytes a second, by the clock of the modelled system."""


class StarvedRollout(Scenario):
    """The batch is too small, and training says so."""

    name = "starved-rollout"
    source = "S1 #2"
    summary = "one rollout worker has to share its core with 24 busy processes, then is OOM-killed"
    fault_type = "cpu_contention"
    expected_failure_stage = "train"
    stage = "rollout"
    naming = ("Straggler", "RankStarved", "OutOfMemoryKill", "JobStalled")
    worker = ("rollout", 8)
    surface = Surface("train", "train", "DistributedBatchMemoryError", "Batch size mismatch")
    cpu_share = 0.2
    _limit: MemoryLimit | None = None
    _leaks = False

    def __init__(self, lab: RlLab, job: RlJob) -> None:
        super().__init__(lab, job)
        self._hogs: list[subprocess.Popen[bytes]] = []

    @property
    def _worker(self) -> str:
        return f"rollout-{self.rank}"

    def prepare(self) -> None:
        if lacks := memory_limit.missing():
            raise StagewatchError(f"{self.name} {lacks}")
        self._limit = MemoryLimit(f"stagewatch-demo-{os.getpid()}-{self.job.plan.job_id}", LIMIT)
        self.job.wrappers[self._worker] = self._limit.wrapper
        self.means.append(f"{self.target} is in a memory cgroup of {LIMIT // MIB} MiB")

    def inject(self) -> None:
        core = max(os.sched_getaffinity(0))
        pid = self.job.processes[self._worker].pid
        os.sched_setaffinity(pid, {core})
        self._hogs.append(self.run("hogs", "cpu", str(core), str(HOGS), str(pid)))
        self.means.append(f"{self.target} and {HOGS} busy processes share core {core}")

    def advance(self, seconds: float) -> None:
        if self._leaks or seconds < STARVED_SECONDS:
            return
        self._leaks = True
        pid = self.job.processes[self._worker].pid
        rate = LEAK * self.job.plan.pace
        log = self.job.log_file("controller-0")
        limit = self._limit.wrapper if self._limit else ()
        leak = self.run("hogs", "memory", str(pid), str(rate), str(log), around=limit)
        self._hogs.append(leak)
        self.means.append(f"in the next rollout its cgroup leaks {rate / MIB:.0f} MiB/s")

    def revert(self) -> None:
        for hog in self._hogs:
            hog.kill()
            hog.wait()

    def close(self) -> None:
        if self._limit is not None:
            self._limit.close()
