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
from pathlib import Path
from typing import Any

from tests.bench.table import row

PROGRAMS = {
    "a step of a bare loop": ("torch", "tests.bench.loop_steps"),
    "a step of TRL's GRPOTrainer": ("trl", "tests.bench.grpo_steps"),
}
"""With the package that it needs and the module that it is."""
PAIRS = 12
HOOKS = ("trl", "torch")
"""What the loader puts into TRL."""
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Print the length of a step, and what is added to it and to the start."""
    for what, (package, module) in PROGRAMS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{what}: not measured, {package} is not installed")
            continue
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            pairs = [_pair(module, directory) for _ in range(PAIRS)]
        without = [plain for (plain, _), _ in pairs]
        added = [watched - plain for (plain, _), (watched, _) in pairs]
        _report(what, without, added, "pairs of processes")
        starts = [watched - plain for (_, plain), (_, watched) in pairs]
        row(f"{what}: added to the start, once", statistics.median(starts) * 1e3, "ms")
    if importlib.util.find_spec("trl") is not None:
        _trl_step()


def _trl_step() -> None:
    """Pairs of steps of GRPOTrainer on a tiny model, with all that the loader hooks."""
    with tempfile.TemporaryDirectory() as directory:
        pairs = _last_line([sys.executable, "-m", "tests.bench.grpo_steps", *HOOKS], directory)
    without = [pair["without"] for pair in pairs]
    added = [pair["with"] - pair["without"] for pair in pairs]
    _report("a step of TRL's GRPOTrainer, as under the loader", without, added, "pairs of steps")


def _report(what: str, without: Sequence[float], added: Sequence[float], pairs: str) -> None:
    step = statistics.median(without)
    low, high = _median_interval(added)
    row(f"{what}: length", step * 1e3, "ms")
    row(f"{what}: added", statistics.median(added) * 1e6, "us")
    print(
        f"{'':<52} {statistics.median(added) / step:10.2%} of the step, "
        f"95 % interval {low / step:.2%} to {high / step:.2%}, {len(added)} {pairs}",
        flush=True,
    )


def _median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median from order statistics; assumes no distribution."""
    ordered = sorted(values)
    half_width = 0.98 * len(ordered) ** 0.5  # 1.96 standard deviations of a fair coin's count
    low = max(0, int(len(ordered) / 2 - half_width))
    high = min(len(ordered) - 1, int(len(ordered) / 2 + half_width) + 1)
    return ordered[low], ordered[high]


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
    ends = _last_line(command, directory)
    steps = [later - earlier for earlier, later in itertools.pairwise(ends)]
    return statistics.median(steps), ends[0]


def _last_line(command: Sequence[str], directory: str) -> Any:
    """What a program prints last, as JSON."""
    environ = os.environ | {
        "STAGEWATCH_DIR": directory,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "exporters"), str(ROOT)]),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    job = subprocess.run(
        command, env=environ, cwd=directory, capture_output=True, text=True, check=True
    )
    return json.loads(job.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
