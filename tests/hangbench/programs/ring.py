"""A trainer and three processes that score for it and share a ring of memory under one lock.

The fault: one of them is killed while it holds the lock, which nobody ever gives back.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Lock

import stagewatch
from tests.hangbench.programs.part import Part

SCORERS = 3


def score(tasks: Queue[tuple[float, bool]], ring: Lock, scored: Synchronized[int]) -> None:
    """Take tasks and count them in the ring."""
    while True:
        seconds, dies = tasks.get()
        with ring:
            time.sleep(seconds)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            scored.value += 1


def main() -> None:
    """Train."""
    part = Part()
    context = multiprocessing.get_context("fork")
    tasks: Queue[tuple[float, bool]] = context.Queue()
    ring, scored = context.Lock(), context.Value("i", 0, lock=False)
    for number in range(SCORERS):
        scorer = context.Process(target=score, args=(tasks, ring, scored), daemon=True)
        scorer.start()
        part.owns(f"scorer {number}", scorer.pid or 0)
    while part.step():
        struck = part.struck()
        before = scored.value
        for number in range(SCORERS):
            hit = struck and number == 0
            tasks.put((part.given.pause if hit else 0.05, hit and part.given.fault))
        with stagewatch.stage("reward"):
            while scored.value < before + SCORERS:
                with ring:
                    pass
                time.sleep(0.02)
        with stagewatch.stage("train"):
            time.sleep(0.5)
            part.all_reduce()


if __name__ == "__main__":
    main()
