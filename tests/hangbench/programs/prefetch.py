"""A trainer with a thread that reads batches ahead from a socket of a data server.

The fault: the thread dies of a batch that it cannot decode, and tells nobody.
"""

from __future__ import annotations

import queue
import threading
import time

import stagewatch
from tests.hangbench.programs.part import Part


class Prefetcher:
    """Batches that a thread has made ready."""

    def __init__(self) -> None:
        self._ready: queue.Queue[int] = queue.Queue(2)
        self.next_seconds, self.corrupt = 0.1, False
        threading.Thread(target=self._fill, name="prefetch", daemon=True).start()

    def _fill(self) -> None:
        number = 0
        while True:
            number += 1
            seconds, self.next_seconds = self.next_seconds, 0.1
            time.sleep(seconds)
            if self.corrupt:
                raise ValueError(f"batch {number} is corrupt")
            self._ready.put(number)

    def next_batch(self) -> int:
        """The next one, once it is ready."""
        return self._ready.get()


def main() -> None:
    """Train."""
    part = Part()
    batches = Prefetcher()
    while part.step():
        if part.struck():
            batches.corrupt = part.given.fault
            batches.next_seconds = part.given.pause or 0.1
        with stagewatch.stage("train"):
            batches.next_batch()
            time.sleep(0.5)
            part.all_reduce()


if __name__ == "__main__":
    main()
