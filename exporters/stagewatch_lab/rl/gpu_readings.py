"""Keeps a recording of the stand-in devices of a node for its agent to replay:

`python -m stagewatch_lab.rl.gpu_readings DEVICES FILE`.  It has the memory that processes have
taken of the devices (see `stagewatch_lab.rl.device`); the model's name says that it is no GPU.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from stagewatch_lab.rl.device import CAPACITY, Device
from stagewatch_lab.rl.job import device_uuid

INTERVAL_SECONDS = 1.0
MODEL = "Stand-in 80GB (no GPU)"
COMMENT = "Memory and load of stand-in devices, as their processes account for them. No GPU."


def write(devices: Path, file: Path) -> None:
    """One look at all devices of a node."""
    tiers: dict[str, list[dict[str, Any]]] = {"fast": [], "medium": [], "slow": []}
    for account in sorted(devices.iterdir(), key=lambda path: int(path.name)):
        used, busy, holders = Device(account).state()
        row = {"gpu": account.name, "uuid": device_uuid(int(account.name))}
        readings = {
            "gpu_utilization_ratio": busy,
            "gpu_memory_used_bytes": used,
            "gpu_memory_total_bytes": CAPACITY,
        }
        tiers["fast"].append({**row, "values": readings})
        tiers["medium"].append({**row, "values": {"gpu_processes": len(holders)}})
        info = {"model": MODEL, "minor": account.name, "pci_bus_id": "", "vbios": "", "serial": ""}
        tiers["slow"].append({**row, "info": info, "values": {}})
    frame = {"driver": "recorded", "tiers": {tier: {"gpus": rows} for tier, rows in tiers.items()}}
    first = {"recording": 1, "interval": INTERVAL_SECONDS, "comment": COMMENT}
    draft = file.with_suffix(".draft")
    draft.write_text(f"{json.dumps(first)}\n{json.dumps(frame)}\n")
    draft.replace(file)


def main(devices: Path, file: Path) -> None:
    """Record for ever."""
    while True:
        write(devices, file)
        time.sleep(INTERVAL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
