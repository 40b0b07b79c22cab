"""What `stagewatch run` adds to programs without a line of ours: a bare loop, and TRL.

Whole processes run in pairs, with and without, in random order.  It is CPU time of all threads,
which other work on the machine disturbs less; a figure is the median over the pairs of what the
median step, or everything before the first counted one, took longer.  Pairs of TRL's steps within
one process, with all hooks that the loader puts in there, tell smaller differences.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tests.bench.bench_overhead import ROOT, median_interval, trl_step
from tests.bench.table import row

PROGRAMS = {
    "a step of a bare loop": ("torch", "tests.bench.loop_steps"),
    "a step of TRL's GRPOTrainer": ("trl", "tests.bench.grpo_steps"),
}
"""With the package that it needs and the module that it is."""
PAIRS = 12


def main() -> None:
    """Print the length of a step, and what is added to it and to the start."""
    for what, (package, module) in PROGRAMS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{what}: not measured, {package} is not installed")
            continue
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            pairs = [_pair(module, directory) for _ in range(PAIRS)]
        without = statistics.median(plain for (plain, _), _ in pairs)
        row(f"{what}: length", without * 1e3, "ms")
        added = [watched - plain for (plain, _), (watched, _) in pairs]
        row(f"{what}: added", statistics.median(added) * 1e6, "us")
        low, high = (edge / without for edge in median_interval(added))
        share = statistics.median(added) / without
        print(
            f"{'':<52} {share:10.2%} of the step, 95 % interval {low:.2%} to {high:.2%}, "
            f"{len(pairs)} pairs of processes",
            flush=True,
        )
        starts = [watched - plain for (_, plain), (_, watched) in pairs]
        row(f"{what}: added to the start, once", statistics.median(starts) * 1e3, "ms")
    if importlib.util.find_spec("trl") is not None:
        trl_step("as under the loader", "trl", "torch")


_Times = tuple[float, float]
"""CPU seconds of the median step and of all before the steps that count."""


def _pair(module: str, directory: str) -> tuple[_Times, _Times]:
    """Without `stagewatch run`, and with it."""
    kinds = {
        kind: _run((*prefix, sys.executable, "-m", module), directory)
        for kind, prefix in random.sample(
            [("without", ()), ("with", (sys.executable, "-m", "stagewatch.cli", "run", "--"))], 2
        )
    }
    return kinds["without"], kinds["with"]


def _run(command: Sequence[str], directory: str) -> _Times:
    environ = os.environ | {
        "STAGEWATCH_DIR": directory,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "exporters"), str(ROOT)]),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    job = subprocess.run(
        command, env=environ, cwd=directory, capture_output=True, text=True, check=True
    )
    ends = json.loads(job.stdout.splitlines()[-1])
    steps = [later - earlier for earlier, later in itertools.pairwise(ends)]
    return statistics.median(steps), ends[0]


if __name__ == "__main__":
    main()
