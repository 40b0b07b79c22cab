"""One rank of a job in the lab: a training loop that can be told to misbehave.

    python -m tests.lab.rank DIRECTORY RANK SIZE OPTIONS

DIRECTORY belongs to the job: all ranks map its `board`, and each looks for `order.RANK` at some
places of its lap.  OPTIONS is JSON: `wait` ("spin" or "park" in the all-reduce), `rollout` (how
many seconds it takes), `pause` (of the data loader in every fifth lap), and what `stagewatch.init`
takes.  The orders are the methods below.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import stagewatch
from stagewatch.core.processes import die_with_parent
from stagewatch.demo.rank import Board


class Rank:
    """The loop, and every way in which it can leave it."""

    def __init__(self, directory: Path, rank: int, size: int, options: dict[str, object]) -> None:
        self.rank = rank
        self.wait = options.pop("wait", "spin")
        self.rollout_seconds = float(options.pop("rollout", 0.4))  # type: ignore[arg-type]
        self.pause_seconds = float(options.pop("pause", 0))  # type: ignore[arg-type]
        self.board = Board(directory / "board", size)
        self.order = directory / f"order.{rank}"
        self.directory = directory
        self.step = 0
        die_with_parent()
        stagewatch.init(rank=rank, world_size=size, **options)  # type: ignore[arg-type]
        (directory / f"pid.{rank}").write_text(str(os.getpid()))

    def run(self) -> None:
        """Train for ever."""
        with stagewatch.stage("init"):
            self.obey("init")
        while True:
            self.step += 1
            self.obey("lap")
            with stagewatch.stage("rollout", step=self.step):
                self.obey("rollout")
                time.sleep(self.rollout_seconds)
            with stagewatch.stage("train", step=self.step):
                if self.pause_seconds and self.step % 5 == 0:
                    time.sleep(self.pause_seconds)  # the data loader has run dry
                sum(number * number for number in range(5_000))
                self.obey("train")
                self.all_reduce()

    def all_reduce(self) -> None:
        """Wait for all others, busy or asleep."""
        if self.wait == "spin":
            self.board.all_reduce(self.rank)
        else:
            self.board.enter(self.rank)
            while not self.board.complete(self.rank):
                time.sleep(0.1)

    def obey(self, where: str) -> None:
        """Carry out an order for this place of the lap: `PLACE STEP NAME ARGUMENT`, due at a
        step, so that ranks that are told the same do it in the same lap."""
        try:
            place, due, name, argument = (*self.order.read_text().split(), "")[:4]
        except (OSError, ValueError):
            return
        if place == where and self.step >= int(due):
            self.order.unlink()
            getattr(self, f"order_{name}")(argument)

    def order_leave(self, _: str) -> None:
        """Leave the loop, and wait in a last barrier for ever."""
        with stagewatch.stage("cleanup"):
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()

    def order_park(self, _: str) -> None:
        """Wait for ever for a message that does not come."""
        os.read(os.pipe()[0], 1)

    def order_spin(self, _: str) -> None:
        """Enter the collective as all others, and busy-poll on a network that lost it."""
        self.board.enter(self.rank)
        while True:
            pass

    def order_read(self, path: str) -> None:
        """Load data from a file."""
        Path(path).read_bytes()

    def order_slow(self, seconds: str) -> None:
        """Be slow, but go on."""
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            time.sleep(0.25)
            stagewatch.heartbeat()

    def order_sleep(self, seconds: str) -> None:
        """Do nothing, legitimately."""
        time.sleep(float(seconds))

    def order_compile(self, seconds: str) -> None:
        """A compiler at work: a third of a core, and memory that comes and goes."""
        lines = (f"def f{i}(a, b): return [a * {i} + b, {{a: b}}]" for i in range(1000))
        source = "\n".join(lines)
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            began = time.thread_time()
            compile(source, "generated", "exec")
            time.sleep(2 * (time.thread_time() - began))  # it reads the next file

    def order_checkpoint(self, seconds: str) -> None:
        """Write a long checkpoint."""
        with stagewatch.stage("checkpoint"):
            self.write(float(seconds))

    def order_evaluate(self, seconds: str) -> None:
        """A long evaluation, which says nothing meanwhile."""
        with stagewatch.stage("eval"):
            time.sleep(float(seconds))

    def order_fail(self, _: str) -> None:
        """End by an exception that nobody catches."""
        with stagewatch.stage("reward"):
            raise RuntimeError("reward model answered 503")

    def write(self, seconds: float) -> None:
        """Write and fsync, a little at a time."""
        end = time.monotonic() + seconds
        with (self.directory / f"checkpoint.{self.rank}").open("wb") as file:
            while time.monotonic() < end:
                file.seek(0)
                file.write(bytes(1 << 20))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.05)


if __name__ == "__main__":
    Rank(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])).run()
