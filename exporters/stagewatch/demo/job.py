"""Runs a job of real processes that trains, hangs, is killed and starts again, for ever.

`python -m stagewatch.demo.job [--ranks N] [--train SECONDS] [--hang SECONDS]` is what the profile
`demo` of compose.yaml runs beside a node agent.  It hangs as `stagewatch demo` does: one rank
leaves the loop early, the others spin in the next all-reduce.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from stagewatch.core.processes import Children
from stagewatch.demo.rank import Board

FIRST_JOB_ID = 540
SKEW_SECONDS = 60.0
"""How far the clock of the rank that leaves early is ahead: more than a step on a busy machine, on
which other ranks would else leave as well."""


def main() -> None:
    """Run one job after another until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, help="processes [default: 4]")
    parser.add_argument(
        "--train", type=float, default=120.0, help="seconds until it hangs [default: 120]"
    )
    parser.add_argument(
        "--hang", type=float, default=120.0, help="seconds until it is killed [default: 120]"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    job_id = FIRST_JOB_ID
    while True:
        _run(job_id, arguments.ranks, arguments.train, arguments.hang)
        job_id += 1


def start_rank(
    children: Children,
    board: Path,
    rank: int,
    size: int,
    *,
    early: bool,
    environ: Mapping[str, str],
    log: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start one rank of a job; the clock of an `early` one is ahead."""
    command = [sys.executable, "-m", "stagewatch.demo.rank", str(board)]
    command += [str(rank), str(size), str(SKEW_SECONDS if early else 0.0)]
    return children.start(command, log=log, environ=environ)


def _run(job_id: int, ranks: int, train: float, hang: float) -> None:
    early = random.randrange(ranks)  # noqa: S311 - any rank will do
    environ = os.environ | {"STAGEWATCH_JOB_ID": str(job_id)}
    with tempfile.TemporaryDirectory(prefix="stagewatch-job-") as directory, Children() as children:
        path = Path(directory) / "board"
        Board.create(path, ranks)
        for rank in range(ranks):
            start_rank(children, path, rank, ranks, early=rank == early, environ=environ)
        print(f"job {job_id}: {ranks} ranks train for {train:g} s", flush=True)
        time.sleep(train)
        Board(path, ranks).set_stop(time.time() + SKEW_SECONDS)
        print(f"job {job_id}: rank {early} leaves the loop early; it hangs", flush=True)
        time.sleep(hang)
    print(f"job {job_id}: killed", flush=True)


def _end(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
