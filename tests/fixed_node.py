"""A node that looks the same in every run: fixed processes, fixed records, fixed clocks.

Job 540 hangs as it once did: rank 0 (pid 4242) spins in the all-reduce of step 220, rank 7
(pid 4243) has left the loop and is parked.  Rollout worker 1 was killed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import stagewatch
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import H_PID, H_PID_NAMESPACE, H_START_TICKS
from tests.fakes.open_files import OpenFiles
from tests.golden import FIXTURES
from tests.records import patched, place

BOOT = 10_000.0
"""Seconds on the boot-time clock when the records end."""
WALL = 1_732_458_600.0
"""2024-11-24T14:30:00Z, which is that time of day."""


class FixedNode:
    """The node's processes and records under a temporary directory."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._now = 0.0
        self._proc = tmp_path / "proc"
        self._records = tmp_path / "fixed-ranks"
        self._draft = tmp_path / "draft"
        self._draft.mkdir()
        self._records.mkdir()
        shutil.copytree(FIXTURES / "proc", self._proc)
        for status in self._proc.glob("*/status"):
            status.write_text(status.read_text().replace("1001", str(os.geteuid())))
        self.proc = Procfs(self._proc)
        self._stop_clocks()
        self._rank(0, "train", 4242, 70001)
        self._rank(7, "train", 4243, 70002)
        self._rank(1, "rollout", 4999, 70003)

    def ranks(self) -> RankDirectory:
        """A directory that has not looked yet."""
        scan = EnvironmentScan(self.proc, OpenFiles(self.proc.root), patience=60)
        return RankDirectory(RecordDirectory(self._records, self.proc), scan, fresh_for=0)

    def _stop_clocks(self) -> None:
        def boot(*_: object) -> int:
            return int(self._now * 1e9)

        def wall() -> int:
            return int((WALL - BOOT + self._now) * 1e9)

        self._patch.setattr("stagewatch.client._lane._read_clock", boot)
        fixed = SimpleNamespace(time_ns=wall, clock_gettime_ns=boot, CLOCK_BOOTTIME=7)
        self._patch.setattr("stagewatch.client._recorder.time", fixed)

    def _rank(self, rank: int, role: str, pid: int, start_ticks: int) -> None:
        self._now = BOOT - 1000
        stagewatch.init(
            role,
            job_id=540,
            rank=rank,
            local_rank=rank,
            world_size=8,
            framework="demo",
            gpu=f"GPU-{rank}",
            directory=self._draft,
        )
        (self._train if role == "train" else self._roll_out)(rank)
        (draft,) = self._draft.glob("*.rank")
        raw = draft.read_bytes()
        stagewatch.close()
        raw = raw.replace(Procfs().boot_id().encode(), self.proc.boot_id().encode())
        ours = {H_PID: pid, H_START_TICKS: start_ticks, H_PID_NAMESPACE: self.proc.pid_namespace()}
        place(self._records, patched(raw, ours), pid)

    def _train(self, rank: int) -> None:
        for step in range(216, 220):
            with stagewatch.stage("rollout", step=step):
                self._now += 20
            with stagewatch.stage("train", step=step):
                for _ in range(3):
                    self._now += 1.5
                    stagewatch.heartbeat()
                stagewatch.collective("world")
            stagewatch.scalar("reward", 0.25 + step / 1000)
        try:
            with stagewatch.stage("eval"):
                self._now += 7
                raise TimeoutError("the judge does not answer")
        except TimeoutError:
            pass
        self._now = BOOT - 412
        if rank == 0:
            stagewatch.collective("world")
            stagewatch.stage("train", step=220).__enter__()
        else:
            stagewatch.stage("cleanup").__enter__()

    def _roll_out(self, rank: int) -> None:
        with stagewatch.stage("rollout", step=3):
            self._now += 90
        stagewatch.stage("vLLM.generate", step=4).__enter__()
