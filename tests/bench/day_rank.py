"""One rank of the scripted day's jobs: it follows a plan, and keeps a log of its own.

Run by `srun` as `python -m tests.bench.day_rank DIRECTORY STATE:SECONDS ...`.  The log is a file of
lines `TIME STATE`, four a second, which nothing of stagewatch writes or reads.  A state is a stage,
`idle` (outside of all stages) or `still` (in train, without a mark of progress).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import stagewatch

MARK_SECONDS = 0.25
"""Between two lines of the log, and two marks of progress."""


def main(directory: Path, plan: list[str]) -> None:
    """Follow the plan to its end."""
    run = os.environ.get("SLURM_RESTART_COUNT", "0")
    name = f"{run}-{os.environ['SLURM_PROCID']}-{os.environ['SLURMD_NODENAME']}.log"
    with (directory / name).open("w", buffering=1) as log:
        stagewatch.init(role="train", framework="day")
        for step, part in enumerate(plan, 1):
            state, _, seconds = part.partition(":")
            stage = "train" if state == "still" else state
            inside = contextlib.nullcontext() if state == "idle" else stagewatch.stage(stage)
            end = time.time() + float(seconds)
            with inside:
                if state != "still":
                    stagewatch.heartbeat(step=step)
                while (now := time.time()) < end:
                    print(f"{now:.3f} {state}", file=log)
                    if state != "still":
                        stagewatch.heartbeat()
                    time.sleep(min(MARK_SECONDS, end - now))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
