"""One rank of the scenarios' training job, which resumes from its last checkpoint.

Run by `srun` as `python -m stagewatch_lab.slurm.training DIRECTORY`; DIRECTORY is shared by the
nodes.  Rank 0 saves the parameters in every fifth step, whole or not at all.
"""

from __future__ import annotations

import array
import json
import os
import re
import sys
import time
from pathlib import Path

import stagewatch
from stagewatch.demo.rank import Board

STEPS_PER_CHECKPOINT = 5
SAMPLES_PER_STEP = 64
PARAMETERS = 16_384
LEARNING_RATE = 0.05
KEPT = 3
"""Checkpoints that are not yet removed."""
_NAME = re.compile(r"step-(\d+)\.ckpt")


class Checkpoints:
    """Files `step-N.ckpt`: a line of JSON, then the parameters."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def steps(self) -> list[int]:
        """The steps of all checkpoints, in order."""
        names = (_NAME.fullmatch(path.name) for path in self._directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def save(self, step: int, parameters: array.array[float]) -> None:
        """Write one, and remove the oldest."""
        draft = self._directory / f"step-{step}.ckpt.tmp"
        with draft.open("wb") as file:
            file.write(json.dumps({"step": step, "parameters": len(parameters)}).encode() + b"\n")
            file.write(parameters.tobytes())
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._directory / f"step-{step}.ckpt")
        for old in self.steps()[:-KEPT]:
            (self._directory / f"step-{old}.ckpt").unlink(missing_ok=True)

    def load(self) -> tuple[int, array.array[float]]:
        """Step and parameters of the newest; step 0 and zeros where there is none."""
        parameters = array.array("d")
        for step in reversed(self.steps()):
            head, _, rest = (self._directory / f"step-{step}.ckpt").read_bytes().partition(b"\n")
            parameters.frombytes(rest)
            if json.loads(head) == {"step": step, "parameters": len(parameters)}:
                return step, parameters
            del parameters[:]
        return 0, array.array("d", bytes(8 * PARAMETERS))


def main(directory: Path) -> None:
    """Train until killed."""
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    run = os.environ.get("SLURM_RESTART_COUNT", "0")
    board_path = directory / f"board-{run}"
    stagewatch.init(role="train", framework="demo")
    with stagewatch.stage("init"):
        if rank == 0:
            draft = directory / f"board-{run}.new"
            Board.create(draft, size)
            draft.rename(board_path)
        while not board_path.exists():
            time.sleep(0.05)
        board = Board(board_path, size)
        checkpoints = Checkpoints(directory / "checkpoints")
        resumed, parameters = checkpoints.load()
        stagewatch.scalar("resumed_step", resumed)
        _all_reduce(board, rank)  # no rank saves while another loads
    step = resumed
    while True:
        step += 1
        began = time.monotonic()
        with stagewatch.stage("rollout", step=step):
            time.sleep(0.2)
        with stagewatch.stage("train", step=step):
            parameters = array.array("d", [p + LEARNING_RATE * (1.0 - p) for p in parameters])
            _all_reduce(board, rank)
        if rank == 0 and step % STEPS_PER_CHECKPOINT == 0:
            with stagewatch.stage("checkpoint", step=step):
                checkpoints.save(step, parameters)
        stagewatch.scalar("loss", (1.0 - parameters[0]) ** 2)
        stagewatch.scalar("samples_per_second", SAMPLES_PER_STEP / (time.monotonic() - began))


def _all_reduce(board: Board, rank: int) -> None:
    """Wait for the others, asleep: the machine's cores are all nodes' in one."""
    board.enter(rank)
    while not board.complete(rank):
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
