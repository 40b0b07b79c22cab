"""A train worker: `python -m stagewatch_lab.rl.train_worker PLAN RANK HOST META DEVICE UUID`.

Waits for the controller's calls, as an engine behind an RPC server does.  META is the name under
which it finds the MetaServer.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

import stagewatch
from stagewatch_lab.rl import checkpoint
from stagewatch_lab.rl.addresses import AddressBook
from stagewatch_lab.rl.device import ACTIVATIONS, TRAIN_MEMORY, Device
from stagewatch_lab.rl.messages import Content, begin_log, serve, transfer
from stagewatch_lab.rl.plan import Plan

log = logging.getLogger(__name__)

TRAIN_SECONDS = 180
MICRO_BATCHES = 6
UPLOAD_SECONDS = 12
SAVE_SECONDS = 28
PATIENCE_SECONDS = 3600


class DistributedBatchMemoryError(RuntimeError):
    """The batch has not the size that all train workers together expect."""


class UploadWeightsError(RuntimeError):
    """The weights did not reach the MetaServer."""


class TrainWorker:
    """One rank of the trainer."""

    def __init__(self, plan: Plan, rank: int, meta: str, device: Device) -> None:
        self._plan = plan
        self._rank = rank
        self._meta = meta
        self._book = AddressBook(plan.directory)
        self._device = device
        self._holding = False
        plan.checkpoints.mkdir(exist_ok=True)
        self._weights = os.urandom(plan.shard_bytes)
        self._occupy()

    def event(self, content: Content) -> Content:
        """Colocation: the device belongs to rollout from `rollout_start` to `rollout_end`."""
        if content["name"] == "rollout_start" and self._holding:
            self._device.give(TRAIN_MEMORY)
            self._holding = False
        elif content["name"] == "rollout_end" and not self._holding:
            self._occupy()
        return {}

    def train(self, content: Content) -> Content:
        """One step over a batch that must be the same on all ranks."""
        step, samples = content["step"], content["samples"]
        with stagewatch.stage("train", step=step):
            expected = self._plan.samples * self._plan.rollouts
            stagewatch.scalar("batch_size", samples)
            if samples != expected:
                raise DistributedBatchMemoryError(f"Batch size mismatch: {samples} of {expected}")
            with self._device.taken(ACTIVATIONS):
                for micro_batch in range(MICRO_BATCHES):
                    self._device.work(0.95)
                    time.sleep(self._plan.seconds(TRAIN_SECONDS / MICRO_BATCHES))
                    self._all_reduce(f"{step}-{micro_batch}")
                    stagewatch.heartbeat()
            self._device.work(0.0)
        return {}

    def upload_weights(self, content: Content) -> Content:
        """Send weights to the MetaServer, from the last checkpoint if there is one (type=disk)."""
        step = content["step"]
        patience = self._plan.seconds(PATIENCE_SECONDS)
        with stagewatch.stage("weights_update", step=step):
            size = self._plan.shard_bytes
            saved = checkpoint.read_part(self._plan.checkpoints, self._rank * size, size)
            time.sleep(self._plan.seconds(UPLOAD_SECONDS))
            path = f"/weights/{step}/{self._rank}"
            body = saved or self._weights
            try:
                address = self._book.wait(self._meta)
                status, _ = transfer(address, "PUT", path, body, patience)
            except TimeoutError as error:
                raise UploadWeightsError("Upload weights request timeout") from error
            if status != 200:
                raise UploadWeightsError(f"MetaServer answered {status}")
        log.info("upload_weights success, step %d", step)
        return {}

    def save(self, content: Content) -> Content:
        """Write a checkpoint; as in many trainers, a failure is logged and training goes on."""
        step = content["step"]
        with stagewatch.stage("checkpoint", step=step):
            weights = self._weights * self._plan.trains
            pace = self._plan.seconds(SAVE_SECONDS)
            try:
                file = checkpoint.save(self._plan.checkpoints, step, weights, pace)
            except OSError as error:
                log.error("Checkpoint save failed, but some files already written: %s", error)
            else:
                log.info("saved %s, %d bytes", file.name, file.stat().st_size)
        return {}

    def _occupy(self) -> None:
        self._device.take(TRAIN_MEMORY)
        self._holding = True

    def _all_reduce(self, name: str) -> None:
        stagewatch.collective("data_parallel")
        path = f"/reduce/{name}/{self._rank}/{self._rank}"
        patience = self._plan.seconds(PATIENCE_SECONDS)
        status, _ = transfer(self._book.wait(self._meta), "POST", path, None, patience)
        if status != 200:
            raise TimeoutError("NCCL timeout in an all-reduce")


def main(plan: Plan, rank: int, host: str, meta: str, device: Device, uuid: str) -> None:
    """Serve for ever."""
    stagewatch.init(
        "train",
        job_id=plan.job_id,
        rank=rank,
        world_size=plan.trains,
        framework="demo-rl",
        gpu=uuid,
    )
    worker = TrainWorker(plan, rank, meta, device)
    routes = worker.event, worker.train, worker.upload_weights, worker.save
    serve(plan, f"train-{rank}", host, *routes)


if __name__ == "__main__":
    begin_log()
    main(
        Plan.load(Path(sys.argv[1])),
        int(sys.argv[2]),
        *(sys.argv[3], sys.argv[4]),
        Device(Path(sys.argv[5])),
        sys.argv[6],
    )
