"""A trainer whose batches come from worker processes, which it forks anew for every epoch.

The fault: a worker is forked while a thread of the trainer holds a lock, and takes that lock.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.queues import Queue

import stagewatch
from tests.hangbench.programs.part import Part

EPOCH, WORKERS = 12, 2
_registry = threading.Lock()


def work(batches: Queue[int], wait: float) -> None:
    """Make batches, each of which looks something up in a registry."""
    time.sleep(wait)
    for number in range(EPOCH // WORKERS):
        with _registry:
            time.sleep(0.1)
        batches.put(number)


def main() -> None:
    """Train."""
    part = Part()
    context = multiprocessing.get_context("fork")
    while part.step():
        if part.at % EPOCH == 1:
            batches: Queue[int] = context.Queue(4)
            pause = 0.0
            struck = part.struck()
            if struck:
                pause = part.given.pause
            if struck and part.given.fault:
                _registry.acquire()  # what a thread did that registered something just then
            workers = [
                context.Process(target=work, args=(batches, pause), daemon=True)
                for _ in range(WORKERS)
            ]
            for number, worker in enumerate(workers):
                worker.start()
                if struck:
                    part.owns(f"worker {number}", worker.pid or 0)
            if _registry.locked():
                _registry.release()
        with stagewatch.stage("train"):
            batches.get()
            time.sleep(0.5)
            part.all_reduce()


if __name__ == "__main__":
    main()
