"""S1 #5: the checkpoints' file system is full when a checkpoint is written."""

from __future__ import annotations

from collections.abc import Mapping

from stagewatch.core.errors import StagewatchError
from stagewatch_lab.rl.plan import MIB
from stagewatch_lab.rl.scenario import Scenario, Surface
from stagewatch_lab.rl.storage import missing

ROOM = 2 * MIB
"""Free bytes for a checkpoint of 14 MiB."""


class FullStorage(Scenario):
    """The checkpoint of one step is cut short; the next step cannot read it."""

    name = "full-storage"
    source = "S1 #5"
    summary = "the file system is full: a checkpoint is cut short, the next step cannot read it"
    fault_type = "disk_full"
    expected_failure_stage = "weights_update"
    stage = "train"
    naming = ("CheckpointShrank", "StorageSpaceExhausted", "StorageCanaryFailed")
    surface = Surface("train", "weights_update", "EOFError", "Checkpoint corrupted: EOFError")

    @property
    def target(self) -> str:
        return str(self.job.plan.checkpoints)

    @property
    def origin(self) -> dict[str, str]:
        return {"mount": self.target}

    def names(self, labels: Mapping[str, str]) -> bool:
        return self.target in (labels.get("mount"), labels.get("directory"))

    def prepare(self) -> None:
        if lacks := missing():
            raise StagewatchError(f"{self.name} {lacks}")

    def inject(self) -> None:
        self.lab.storages[self.job.plan.job_id].fill(ROOM)
        self.means.append(f"the tmpfs at {self.target} has 2 MiB left")

    def revert(self) -> None:
        if storage := self.lab.storages.get(self.job.plan.job_id):
            storage.empty()
