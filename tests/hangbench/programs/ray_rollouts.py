"""Trainers, the first of which drives two Ray actors: one rolls out, and asks the other for scores.

The fault: the event loop of the first is blocked in `ray.get` until it has its score, and the
scorer asks just this actor for another turn before it scores.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import ray

import stagewatch
from tests.hangbench.programs.part import Part, directory


class Scorer:
    """Scores answers."""

    def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    def score(self, rollouter: Any, seconds: float, another_turn: bool) -> float:
        """The score of an answer, or of what follows it."""
        time.sleep(seconds)
        if another_turn:
            ray.get(rollouter.turn.remote())
        return 1.0


class Rollouter:
    """Rolls out, in an event loop."""

    def __init__(self, scorer: Any) -> None:
        self._scorer = scorer

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    async def turn(self) -> str:
        """One more answer."""
        await asyncio.sleep(0.1)
        return "answer"

    async def roll_out(self, itself: Any, seconds: float, another_turn: bool) -> float:
        """A rollout with its score."""
        await self.turn()
        score: float = ray.get(self._scorer.score.remote(itself, seconds, another_turn))
        return score


def start(part: Part) -> Any:
    """The rollouter of a Ray of this rank's own."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    os.chdir(directory())  # whose own path may be too long for Ray's sockets
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
        _temp_dir=f"/proc/{os.getpid()}/cwd",
    )
    scorer = ray.remote(Scorer).options(num_cpus=0).remote()
    rollouter = ray.remote(Rollouter).options(num_cpus=0).remote(scorer)
    part.owns("scorer", ray.get(scorer.pid.remote()))
    part.owns("rollouter", ray.get(rollouter.pid.remote()))
    return rollouter


def main() -> None:
    """Roll out and train."""
    part = Part()
    rollouter = start(part) if part.rank == 0 else None
    while part.step():
        if rollouter:
            struck = part.struck()
            seconds = part.given.pause if struck else 0.1
            with stagewatch.stage("rollout"):
                ray.get(rollouter.roll_out.remote(rollouter, seconds, struck and part.given.fault))
        with stagewatch.stage("train"):
            part.all_reduce()
            time.sleep(0.3)


if __name__ == "__main__":
    main()
