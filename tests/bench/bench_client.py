"""Costs of a heartbeat, a stage, a collective and an event: the median of batches.

It is CPU time, which other work on the machine disturbs less; no call waits for anything.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable

import stagewatch
from stagewatch.client import _api
from tests.bench.table import row

BATCHES = 25
CALLS = 20_000


def main() -> None:
    """Print the median cost of a call."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        stagewatch.init(job_id="bench", rank=0, directory=directory)
        recorder = _api._recorder
        assert recorder is not None
        pack, ring, place = recorder._pack, recorder._raw, recorder._place
        steps = itertools.count()

        def event() -> None:
            pack(ring, next(place), 1, 2, 3, 1)

        def heartbeat() -> None:
            stagewatch.heartbeat(3)

        def stage() -> None:
            with stagewatch.stage("train", step=3):
                pass

        def collective() -> None:
            with stagewatch.collective("tp:1", op="all_reduce", size=4, elements=1024):
                pass

        def batch() -> None:
            recorder.got_batch(recorder.wait_for_batch())

        empty = _median_ns(lambda: None)
        row("empty call, for comparison", empty / 1000, "us")
        row("an event in the ring, added to a call", (_median_ns(event) - empty) / 1000, "us", 0.2)
        row("heartbeat(step)", _median_ns(heartbeat) / 1000, "us", 1.0)
        new_step = _median_ns(lambda: stagewatch.heartbeat(next(steps)))
        row("heartbeat(step), the step new", new_step / 1000, "us", 1.0)
        row("stage enter + exit", _median_ns(stage) / 1000, "us", 3.0)
        row("scalar", _median_ns(lambda: stagewatch.scalar("reward", 0.3)) / 1000, "us")
        row("collective, bare", _median_ns(lambda: stagewatch.collective("world")) / 1000, "us")
        row("collective enter + leave", _median_ns(collective) / 1000, "us", 2.0)
        row("wait for a batch, counted", _median_ns(batch) / 1000, "us")
        stagewatch.close()


def _median_ns(call: Callable[[], None]) -> float:
    timer = timeit.Timer(call, timer=time.process_time)
    timer.timeit(CALLS)
    return statistics.median(timer.timeit(CALLS) / CALLS * 1e9 for _ in range(BATCHES))
