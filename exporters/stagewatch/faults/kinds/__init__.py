"""Every kind of fault that can be injected."""

from __future__ import annotations

from typing import Any

from stagewatch.faults.kinds import disk, gpu, hogs, network, process, slurm
from stagewatch.faults.kinds.hogs import Helper
from stagewatch.faults.kinds.network import Chain, Netem
from stagewatch.faults.plan import Kind, Step, StepTypes

KINDS: dict[str, Kind[Any]] = {
    kind.name: kind
    for kind in (
        hogs.CPU,
        hogs.MEMORY,
        disk.FILL,
        disk.IO,
        network.DELAY,
        network.LOSS,
        network.DNS,
        process.STOP,
        process.KILL,
        gpu.MEMORY,
        gpu.PROCESS_KILL,
        slurm.DRAIN,
        slurm.KILL,
    )
}

_STEPS: tuple[type[Step], ...] = (
    Helper,
    disk.Fill,
    disk.Scratch,
    Chain,
    Netem,
    process.Stop,
    process.Kill,
    slurm.Drain,
    slurm.KillDaemon,
)
STEPS: StepTypes = {step.__name__: step for step in _STEPS}
