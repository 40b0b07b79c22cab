"""A trainer that scores answers in a `multiprocessing.Pool`.

The fault: a worker of the pool is killed for want of memory, and `map` waits for its result.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import stagewatch
from tests.hangbench.programs.part import Part


def score(answer: tuple[float, bool]) -> float:
    """Score an answer."""
    seconds, dies = answer
    time.sleep(seconds)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return seconds


def main() -> None:
    """Train."""
    part = Part()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        while part.step():
            answers = [(0.1, False)] * 4
            if part.struck():
                answers[2] = (part.given.pause, part.given.fault)
            with stagewatch.stage("reward"):
                pool.map(score, answers, chunksize=1)
            with stagewatch.stage("train"):
                time.sleep(0.5)
                part.all_reduce()


if __name__ == "__main__":
    main()
