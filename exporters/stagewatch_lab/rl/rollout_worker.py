"""A rollout worker: `python -m stagewatch_lab.rl.rollout_worker PLAN RANK DEVICE UUID`.

It shares its device with the train worker of the same number, if there is one.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from pathlib import Path

import stagewatch
from stagewatch_lab.rl.addresses import AddressBook
from stagewatch_lab.rl.device import ROLLOUT_MEMORY, Device, OutOfDeviceMemory
from stagewatch_lab.rl.messages import Content, begin_log, call, serve, transfer
from stagewatch_lab.rl.plan import MIB, Plan

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
ROLLOUT_SECONDS = 120
MEMORY = 40 * MIB
"""Working memory of an engine, 40 GB, a thousandth of it."""
EVENT_SECONDS = 600
UPDATE_SECONDS = 3600
CAST_SECONDS = 15
ALLOCATION_PAUSE = 15.0
ALLOCATION_ATTEMPTS = 120


class UpdateWeightError(RuntimeError):
    """The new weights did not come."""


class RolloutWorker:
    """One inference engine."""

    def __init__(self, plan: Plan, rank: int, device: Device) -> None:
        self._plan = plan
        self._rank = rank
        self._book = AddressBook(plan.directory)
        self._device = device
        self._cache = bytearray(b"k") * MEMORY
        self._random = random.Random(rank)  # noqa: S311
        self._version = -1

    def event(self, content: Content) -> Content:
        """Pass a colocation event on to the train worker that shares the device."""
        if self._rank < self._plan.trains:
            partner = self._book.wait(f"train-{self._rank}")
            call(partner, "event", content, self._plan.seconds(EVENT_SECONDS))
        return {}

    def rollout(self, content: Content) -> Content:
        """Generate samples on the device."""
        step = content["step"]
        with stagewatch.stage("rollout", step=step):
            self._allocate()
            began = time.monotonic()
            lengths = [self._sample(number) for number in range(self._plan.samples)]
            self._device.work(0.0)
            self._device.give(ROLLOUT_MEMORY)
        reward = sum(length % 7 for length in lengths) / len(lengths) / 7
        stagewatch.scalar("reward", reward)
        stagewatch.scalar("seqlen", sum(lengths) / len(lengths))
        stagewatch.scalar("staleness", step - 1 - self._version if self._version >= 0 else 0)
        stagewatch.scalar("samples_per_second", len(lengths) / (time.monotonic() - began))
        return {"samples": len(lengths), "reward": reward}

    def update_weights(self, content: Content) -> Content:
        """Fetch every shard from the MetaServer."""
        step = content["step"]
        end = time.monotonic() + self._plan.seconds(UPDATE_SECONDS)
        with stagewatch.stage("weights_update", step=step):
            time.sleep(self._plan.seconds(CAST_SECONDS))
            server = self._book.wait("metaserver")
            for rank in range(self._plan.trains):
                path = f"/weights/{step}/{rank}"
                try:
                    left = max(0.01, end - time.monotonic())
                    status, _ = transfer(server, "GET", path, None, left)
                except TimeoutError:
                    status = 404
                if status != 200:
                    raise UpdateWeightError("Failed to update weights: NCCL timeout")
                stagewatch.heartbeat()
            self._version = step
        return {}

    def _allocate(self) -> None:
        """Take the device; try again while it is not free."""
        for attempt in range(1, ALLOCATION_ATTEMPTS + 1):
            try:
                self._device.take(ROLLOUT_MEMORY)
                return
            except OutOfDeviceMemory as error:
                log.error("RolloutError: attempt %d: %s", attempt, error)
                stagewatch.scalar("failed_allocations", attempt)
                time.sleep(self._plan.seconds(ALLOCATION_PAUSE))
        self._device.take(ROLLOUT_MEMORY)

    def _sample(self, number: int) -> int:
        """One sample: a part on the CPU (tokens, sampling), the rest on the device."""
        whole = self._plan.seconds(ROLLOUT_SECONDS / self._plan.samples)
        began = time.monotonic()
        length = 0
        until = time.thread_time() + whole * self._plan.cpu_share
        while time.thread_time() < until:
            length += self._random.randrange(64)
        busy = whole * (1 - self._plan.cpu_share)
        time.sleep(busy)
        took = time.monotonic() - began
        if number % 10 == 0:
            self._device.work(min(1.0, busy / took))
        stagewatch.heartbeat()
        stagewatch.scalar("sample_seconds", took)
        return length


def main(plan: Plan, rank: int, device: Device, uuid: str) -> None:
    """Serve for ever."""
    stagewatch.init(
        "rollout",
        job_id=plan.job_id,
        rank=rank,
        world_size=plan.rollouts,
        framework="demo-rl",
        gpu=uuid,
    )
    worker = RolloutWorker(plan, rank, device)
    serve(plan, f"rollout-{rank}", HOST, worker.event, worker.rollout, worker.update_weights)


if __name__ == "__main__":
    begin_log()
    main(Plan.load(Path(sys.argv[1])), int(sys.argv[2]), Device(Path(sys.argv[3])), sys.argv[4])
