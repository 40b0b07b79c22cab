"""The GPUs of this node as the `gpu` collector last saw them, for other collectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stagewatch.gpu.device_state import DeviceStates
from stagewatch.gpu.readings import Reading, parse


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU or MIG instance."""

    gpu: str
    uuid: str
    mig: str
    minor: int | None = None
    """The number of its device file `/dev/nvidia<minor>`; a MIG instance has that of its GPU."""
    memory_by_pid: Mapping[int, float] = field(default_factory=dict)
    """Bytes of device memory by process, for processes whose memory the driver reports."""
    processes: int | None = None
    """The number of processes that hold it; None where unknown."""

    @property
    def labels(self) -> tuple[str, str, str]:
        """The values of the labels gpu, uuid and mig."""
        return self.gpu, self.uuid, self.mig


class GpuDirectory:
    """The `gpu` collector writes it and others read it; every change replaces all of it."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuFacts] = {}
        self._states = DeviceStates()

    def gpus(self) -> tuple[GpuFacts, ...]:
        """All GPUs that the driver reaches."""
        return tuple(self._gpus.values())

    def of_process(self, pid: int) -> str:
        """The UUID of the GPU on which a process has the most memory; empty if it has none."""
        held = [
            (one.memory_by_pid[pid], one.mig, uuid)
            for uuid, one in self._gpus.items()
            if pid in one.memory_by_pid
        ]
        return max(held)[2] if held else ""

    def state(self, uuid: str) -> str:
        """What a GPU does (`Device`); empty if unknown."""
        state = self._states.state(uuid)
        return state.value if state else ""

    def clear(self) -> None:
        """Forget all GPUs."""
        self._gpus = {}
        self._states.clear()

    def update(self, tier: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add a tier of a frame (see `stagewatch.gpu.nvml`)."""
        rows = list(rows)
        self._states.note(tier, rows)
        gpus = {}
        for row in rows:
            uuid = row["uuid"]
            if row.get("lost") or not uuid:
                continue
            gpu, mig = row["gpu"], row.get("mig", "")
            facts = self._gpus.get(uuid)
            if facts is None or (facts.gpu, facts.mig) != (gpu, mig):
                facts = replace(facts or GpuFacts(gpu, uuid, mig), gpu=gpu, mig=mig)
            if tier == "slow":
                minor = row.get("info", {}).get("minor", "")
                facts = replace(facts, minor=int(minor) if minor.isdigit() else None)
            elif tier == "medium":
                memory, processes = _processes(row["values"])
                facts = replace(facts, memory_by_pid=memory, processes=processes)
            gpus[uuid] = facts
        self._gpus = gpus


def _processes(values: Mapping[str, float]) -> tuple[dict[int, float], int | None]:
    memory: dict[int, float] = {}
    for key, value in values.items():
        reading, labels = parse(key)
        if reading is Reading.PROCESS_MEMORY:
            memory[int(labels[0])] = value
    count = values.get(Reading.PROCESSES.key())
    return memory, None if count is None else int(count)
