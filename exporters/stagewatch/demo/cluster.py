"""The demo's cluster: two node agents, a job of real processes over them, and Prometheus."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import stagewatch
from stagewatch.demo.rank import Board
from stagewatch.demo.stack import Stack, free_port, wait_for
from stagewatch.faults.markers import Marker
from stagewatch.prometheus.api import PrometheusApi

__all__ = ["JOB_ID", "NODES", "RANKS", "DemoCluster", "Rank", "free_port", "wait_for"]

NODES = ("node-a", "node-b")
RANKS = 8
JOB_ID = "540"
RECORDINGS = Path(stagewatch.__path__[0]) / "recordings"
SKEW_SECONDS = 3.0
"""How far the chosen rank's clock is ahead; more than a step, so that it leaves laps early."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of the demo's job."""

    rank: int
    node: str
    process: subprocess.Popen[bytes]


class DemoCluster(Stack):
    """Everything the demo starts; leaving the context ends and removes it all."""

    def __init__(self, *, cache: Path, seed: int | None = None) -> None:
        super().__init__(cache=cache, nodes=NODES)
        self.early = random.Random(seed).randrange(RANKS)  # noqa: S311
        self.ranks: list[Rank] = []
        self._board = self.directory / "board"

    def start(self) -> PrometheusApi:
        """Start agents, ranks and Prometheus, and wait until it answers."""
        for node in NODES:
            recorded = not Path("/dev/nvidiactl").exists()
            recording = str(RECORDINGS / f"h200-{node}.jsonl")
            flags = ["--collector.gpu.recording", recording] if recorded else []
            self.start_agent(node, *flags)
        Board.create(self._board, RANKS)
        for rank in range(RANKS):
            self._start_rank(rank)
        return self.start_prometheus()

    def steps(self) -> int:
        """How many steps the job has begun."""
        return Board(self._board, RANKS).laps()

    def inject_stall(self) -> float:
        """Let the job reach the end of its time; returns when, and leaves a fault marker."""
        now = time.time()
        Board(self._board, RANKS).set_stop(now + SKEW_SECONDS)
        self.mark(
            Marker(
                id="sync-stall",
                fault_type="sync_stall",
                start=now,
                target_worker=f"rank_{self.early}",
                expected_failure_stage="train",
                scenario="S0",
            )
        )
        return now

    def __enter__(self) -> DemoCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_rank(self, rank: int) -> None:
        node = NODES[rank * len(NODES) // RANKS]
        skew = SKEW_SECONDS if rank == self.early else 0.0
        command = [sys.executable, "-m", "stagewatch.demo.rank", str(self._board)]
        command += [str(rank), str(RANKS), str(skew)]
        environ = os.environ | {
            "STAGEWATCH_DIR": str(self.record_dir(node)),
            "STAGEWATCH_JOB_ID": JOB_ID,
        }
        process = self.children.start(
            command, log=self.directory / f"rank-{rank}.log", environ=environ
        )
        self.ranks.append(Rank(rank, node, process))
