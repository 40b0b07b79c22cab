"""All kinds of faults that can be injected, one subject per file, and their steps.

A file declares its steps, the options of its kinds, and the function that turns a request into a
plan.  Add a new kind to KINDS, and its steps to STEPS, the steps that a journal may have.
"""

from __future__ import annotations

from typing import Any

from stagewatch.faults.kinds import disk, gpu, hogs, network, process, slurm
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
        slurm.DRAIN,
    )
}

_STEPS: tuple[type[Step], ...] = (
    hogs.Helper,
    disk.Fill,
    disk.Scratch,
    network.Chain,
    network.Netem,
    process.Stop,
    process.Kill,
    slurm.Drain,
)
STEPS: StepTypes = {step.__name__: step for step in _STEPS}
