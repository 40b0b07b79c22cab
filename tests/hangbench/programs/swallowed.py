"""Rollouts by tasks of an event loop, which a rank starts and whose results it counts.

The fault: a task ends with an exception that nobody awaits, and the count is never complete.
"""

from __future__ import annotations

import asyncio
import time

import stagewatch
from tests.hangbench.programs.part import Part

GROUPS = 8


class Collector:
    """Counts finished groups."""

    def __init__(self) -> None:
        self.finished, self.complete = 0, asyncio.Event()

    async def generate(self, seconds: float, fails: bool) -> None:
        """One group of rollouts."""
        await asyncio.sleep(seconds)
        if fails:
            raise RuntimeError("EngineDeadError")
        self.finished += 1
        if self.finished == GROUPS:
            self.complete.set()


async def roll_out(seconds: float, fails: bool) -> None:
    """All groups of a step."""
    collector = Collector()
    tasks = {
        asyncio.create_task(
            collector.generate(seconds if group == 0 else 0.2, fails and group == 0)
        )
        for group in range(GROUPS)
    }
    await collector.complete.wait()
    tasks.clear()


async def run(part: Part) -> None:
    """Roll out and train."""
    while part.step():
        struck = part.struck()
        with stagewatch.stage("rollout"):
            await roll_out(part.given.pause if struck else 0.2, struck and part.given.fault)
        with stagewatch.stage("train"):
            time.sleep(0.3)
            part.all_reduce()


if __name__ == "__main__":
    asyncio.run(run(Part()))
