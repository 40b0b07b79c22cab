"""What the client and the hooks add to a training step: A/B, interleaved, with intervals.

CPU time of the training thread, since the machine is shared; each pair of steps runs with and
without, in random order, and the interval is that of the median of the differences.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import stagewatch
from stagewatch.client.hooks.span import Span
from stagewatch.client.hooks.trl import NAMES as TRL
from tests.bench.table import row

PAIRS = 3000
BATCHES = 25
CALLS = 20_000
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Print the cost of a call, then the overhead in a step of 1 ms and in one of TRL."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        stagewatch.init(job_id="bench", rank=0, directory=directory)
        _calls()
        _synthetic_step()
        stagewatch.close()
    if importlib.util.find_spec("trl") is None:
        print("a step of TRL's GRPOTrainer: not measured, TRL is not installed")
    else:
        trl_step("hooked", "trl")


def _calls() -> None:
    class ProcessGroup:
        """As PyTorch's, for a call that takes no time."""

        group_name, group_desc = "1", "tp"

        def size(self) -> int:
            return 4

        def allreduce(self, tensors: object) -> object:
            return None

    class Plain(ProcessGroup):
        allreduce = ProcessGroup.allreduce

    module: Any = ModuleType("watched")
    module.ProcessGroup = ProcessGroup
    stagewatch.watch_collectives(module)
    plain, watched = Plain(), ProcessGroup()

    def span() -> None:
        with Span(TRL, "_calculate_rewards", 3):
            pass

    row("a hooked span, enter + exit", _median(span) * 1e6, "us")
    added = _median(lambda: watched.allreduce(1)) - _median(lambda: plain.allreduce(1))
    row("a watched collective, added to the call", added * 1e6, "us")


def _synthetic_step() -> None:
    """A step of 1 ms, in a stage and with a heartbeat.

    Its work is one call into C: a loop in Python runs some per cent faster or slower by where the
    interpreter's allocator happens to be, which is more than what is measured here.
    """
    megabyte = min(_cpu_seconds(partial(_hash, bytes(2**20))) for _ in range(20))
    work = bytes(round(1e-3 / megabyte * 2**20))

    def plain() -> None:
        _hash(work)

    def recorded() -> None:
        with stagewatch.stage("train", step=3):
            _hash(work)
        stagewatch.heartbeat(3)

    without, added = [], []
    for _ in range(PAIRS):
        first_plain = random.random() < 0.5
        one = _cpu_seconds(plain if first_plain else recorded)
        two = _cpu_seconds(recorded if first_plain else plain)
        without.append(one if first_plain else two)
        added.append(two - one if first_plain else one - two)
    _report("a synthetic step with a stage and a heartbeat", without, added)


def trl_step(how: str, *hooks: str) -> None:
    """Steps of GRPOTrainer on a tiny model, which makes the share as large as it can be."""
    with tempfile.TemporaryDirectory() as directory:
        environ = os.environ | {
            "STAGEWATCH_DIR": directory,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "exporters"), str(ROOT)]),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        job = subprocess.run(
            [sys.executable, "-m", "tests.bench.grpo_steps", *hooks],
            env=environ,
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
    pairs = json.loads(job.stdout.splitlines()[-1])
    without = [pair["without"] for pair in pairs]
    added = [pair["with"] - pair["without"] for pair in pairs]
    _report(f"a step of TRL's GRPOTrainer, {how}", without, added)


def _report(what: str, without: Sequence[float], added: Sequence[float]) -> None:
    step = statistics.median(without)
    low, high = median_interval(added)
    row(f"{what}: length", step * 1e3, "ms")
    row(f"{what}: added", statistics.median(added) * 1e6, "us")
    print(
        f"{'':<52} {statistics.median(added) / step:10.2%} of the step, "
        f"95 % interval {low / step:.2%} to {high / step:.2%}, {len(added)} pairs",
        flush=True,
    )


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median from order statistics; assumes no distribution."""
    ordered = sorted(values)
    half_width = 0.98 * len(ordered) ** 0.5  # 1.96 standard deviations of a fair coin's count
    low = max(0, int(len(ordered) / 2 - half_width))
    high = min(len(ordered) - 1, int(len(ordered) / 2 + half_width) + 1)
    return ordered[low], ordered[high]


def _hash(work: bytes) -> None:
    hashlib.sha256(work).digest()


def _cpu_seconds(call: Callable[[], object]) -> float:
    before = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - before) / 1e9


def _median(call: Callable[[], object]) -> float:
    timeit.timeit(call, number=CALLS)
    return statistics.median(timeit.timeit(call, number=CALLS) / CALLS for _ in range(BATCHES))
