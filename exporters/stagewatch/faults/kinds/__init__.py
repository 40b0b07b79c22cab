"""Every kind of fault that can be injected."""

from __future__ import annotations

from stagewatch.faults.kinds import disk, gpu, load, network, process, slurm_daemon, slurm_drain
from stagewatch.faults.kinds.base import Kind
from stagewatch.faults.kinds.helpers import Helper
from stagewatch.faults.kinds.iptables import Chain
from stagewatch.faults.kinds.netem import Netem
from stagewatch.faults.steps import Step, StepTypes

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        load.CPU,
        load.MEMORY,
        disk.FILL,
        disk.IO,
        network.DELAY,
        network.LOSS,
        network.DNS,
        process.STOP,
        process.KILL,
        gpu.MEMORY,
        gpu.PROCESS_KILL,
        slurm_drain.DRAIN,
        slurm_daemon.KILL,
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
    slurm_drain.Drain,
    slurm_daemon.KillDaemon,
)
STEPS: StepTypes = {step.__name__: step for step in _STEPS}
