"""One rank of the demo's job: a training loop over a busy-polling all-reduce.

The loop ends by the wall clock, as in the incident it re-enacts: a rank whose clock is ahead
leaves first and sleeps in the final barrier, while the others have entered one more all-reduce
and spin in it for ever.

Run as `python -m stagewatch.demo.rank BOARD RANK SIZE SKEW`; BOARD is a file that all ranks map.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import time
from pathlib import Path

import stagewatch

STOP_AT = 0
"""Index of the word with the time to leave the loop, in nanoseconds of wall time; 0: never."""
COUNTERS = 1
"""Index of the first rank's count of all-reduces."""


class Board:
    """Words of memory that all ranks share, and an all-reduce that busy-polls on them."""

    def __init__(self, path: Path, size: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._map).cast("q")
        self._counters = self._words[COUNTERS : COUNTERS + size]

    @staticmethod
    def create(path: Path, size: int) -> None:
        """Make the file for a job of `size` ranks."""
        path.write_bytes(bytes(8 * (COUNTERS + size)))

    def stop_at(self) -> float:
        """The time to leave the loop, Unix seconds; 0: never."""
        return self._words[STOP_AT] / 1e9

    def set_stop(self, when: float) -> None:
        """Set the time at which all ranks leave the loop, Unix seconds."""
        self._words[STOP_AT] = int(when * 1e9)

    def all_reduce(self, rank: int) -> None:
        """Enter, and spin until every rank has entered as often as this one."""
        self.enter(rank)
        mine = self._counters[rank]
        while min(self._counters) < mine:
            pass

    def enter(self, rank: int) -> None:
        """Enter an all-reduce, without waiting for the others."""
        stagewatch.collective("world")
        self._counters[rank] += 1

    def laps(self) -> int:
        """The number of all-reduces that the furthest rank has entered."""
        return max(self._counters)

    def complete(self, rank: int) -> bool:
        """Whether every rank has entered as often as this one."""
        mine: int = self._counters[rank]
        return min(self._counters) >= mine


def give_way() -> None:
    """Take what agents and Prometheus leave of the cores: a real rank has one of its own.

    Each session is a group of its own to the scheduler: sched(7), autogroup.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
    os.nice(19)


def main(board_path: str, rank: int, size: int, skew: float) -> None:
    """Train until told to stop, then wait for the others for ever."""
    give_way()
    board = Board(Path(board_path), size)
    stagewatch.init(rank=rank, world_size=size, framework="demo")
    step = 0
    while not board.stop_at() or time.time() + skew < board.stop_at():
        step += 1
        began = time.monotonic()
        with stagewatch.stage("rollout", step=step):
            time.sleep(0.4)
        with stagewatch.stage("train", step=step):
            sum(number * number for number in range(20_000))
            board.all_reduce(rank)
        stagewatch.scalar("step_seconds", time.monotonic() - began)
    with stagewatch.stage("cleanup"):
        barrier = threading.Lock()
        barrier.acquire()
        barrier.acquire()  # a futex that nobody will ever wake


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
