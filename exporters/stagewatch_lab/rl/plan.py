"""What all processes of one job know: its sizes, directories and pace."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

GIB = 1 << 30
MIB = 1 << 20

CHECKPOINT_BYTES = 14 * MIB
"""A 7B model's 14 GB, a thousandth of it; so are the memory of a rollout worker and a GPU's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One job.  Durations are given in seconds of the system that it is a model of."""

    job_id: str
    directory: Path
    """Addresses, devices and the controller's notice of its end."""
    checkpoints: Path
    trains: int = 8
    rollouts: int = 4
    samples: int = 100
    """Samples that each rollout worker generates in a step."""
    cpu_share: float = 0.05
    """Part of a sample's time that a rollout worker computes on its CPU."""
    pace: float = 60.0
    """Seconds of the modelled system in one second."""

    @property
    def shard_bytes(self) -> int:
        """Weights of each train worker: enough for a slow link to show, in a large job too."""
        return max(MIB, CHECKPOINT_BYTES // self.trains)

    def seconds(self, modelled: float) -> float:
        """The real seconds for some seconds of the modelled system."""
        return modelled / self.pace

    def save(self) -> Path:
        """Write it down for the processes."""
        file = self.directory / "plan.json"
        plan = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in asdict(self).items()
        }
        file.write_text(json.dumps(plan))
        return file

    @classmethod
    def load(cls, file: Path) -> Plan:
        """Read what `save` wrote."""
        content = json.loads(file.read_text())
        for name in ("directory", "checkpoints"):
            content[name] = Path(content[name])
        return cls(**content)
