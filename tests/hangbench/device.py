"""What the GPUs of ranks do, as NVML would tell it: one H100 a rank, which its node's agent reads
from a recording.

A rank notes what its GPU does beside its programme, in memory that it shares with the player
(`Devices`); of that the field makes each second what the agents of the nodes read (`NodeGpus`).
"""

from __future__ import annotations

import contextlib
import json
import mmap
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from stagewatch.gpu.readings import Reading

COMPUTES, SPINS, IDLE = "computes", "spins", "idle"
DEVICES = (IDLE, COMPUTES, SPINS)
"""What the key `device` of an action may say; a GPU spins in a kernel of NCCL that waits."""
GPUS_PER_NODE = 24
"""A rank for which none is left has no GPU."""
MAX_RANKS = 16
_WAITS_ON_DEVICE = frozenset(["collective", "wait", "send", "recv", "ddp"])
_WORKS = frozenset(["sleep", "compute", "heartbeat", "launch"])
_OF_THE_HOST = frozenset(["reward", "advantage", "checkpoint", "init", "cleanup"])
"""Stages in which a rank's work is not its GPU's."""
_HOLDS_BYTES = 60 << 30
_TOTAL_BYTES = 80 << 30
_LIMIT_WATTS = 700.0

# Training keeps eight H100s close to their limit of 700 W (arxiv.org/abs/2412.08602: 8.4 kW with
# their node); tensor cores are busy a third of the time in it, and memory likewise.  One that has
# a context and nothing to do draws 110 W (github.com/wilicc/gpu-burn/issues/114).  One that waits
# in a kernel of NCCL is 100 % busy and draws little more than an idle one: 77 of 400 W of an A100
# (github.com/pytorch/pytorch/issues/118369), 66 of 300 W of a V100
# (github.com/zai-org/GLM-130B/issues/32); its 24 blocks are on as many of 132 SMs.
_H100 = {
    IDLE: (0.0, 0.0, 0.0, 0.0, 110.0),
    COMPUTES: (1.0, 0.85, 0.35, 0.4, 640.0),
    SPINS: (1.0, 0.18, 0.0, 0.004, 150.0),
}
_READINGS = (
    *(Reading.UTILIZATION, Reading.SM_ACTIVE, Reading.TENSOR_ACTIVE, Reading.DRAM_ACTIVE),
    Reading.POWER,
)


def usual(do: str, stage: str, step: int) -> str:
    """What a GPU does during an action that does not say it."""
    if do in _WAITS_ON_DEVICE:
        return SPINS
    works = do in _WORKS and step > 0 and stage not in _OF_THE_HOST
    return COMPUTES if works else IDLE


class Devices:
    """What the GPU of each process of a job does, and for how long it has done so in all."""

    _WORDS = 2 + len(DEVICES)

    def __init__(self, directory: Path) -> None:
        with (directory / "devices").open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    @classmethod
    def create(cls, directory: Path) -> None:
        """Make the file; all GPUs are idle."""
        (directory / "devices").write_bytes(bytes(8 * cls._WORDS * MAX_RANKS))

    def does(self, rank: int, what: str) -> None:
        """Note what the GPU of a process does from now on."""
        own, now = self._of(rank), time.time_ns()
        own[2 + own[0]] += now - (own[1] or now)
        own[0], own[1] = DEVICES.index(what), now

    def spent(self, rank: int) -> dict[str, float]:
        """Seconds that it has spent with each so far."""
        own = self._of(rank)
        seconds = {what: own[2 + index] / 1e9 for index, what in enumerate(DEVICES)}
        if own[1]:
            seconds[DEVICES[own[0]]] += (time.time_ns() - own[1]) / 1e9
        return seconds

    def _of(self, rank: int) -> memoryview:
        return self._words[rank * self._WORDS : (rank + 1) * self._WORDS]


class Gpu:
    """One of a node, and the process that has it."""

    def __init__(self, node: str, index: int) -> None:
        self.index = index
        self.uuid = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{node} {index}')}"
        self.taken = False
        self._user: tuple[subprocess.Popen[bytes], Devices, int] | None = None
        self._before: dict[str, float] = {}

    def use(self, process: subprocess.Popen[bytes], devices: Devices, rank: int) -> None:
        """Belong to a rank from now on."""
        self._user, self._before = (process, devices, rank), devices.spent(rank)

    def leave(self) -> None:
        """Belong to nobody."""
        self.taken, self._user = False, None

    def pid(self) -> int:
        """Of the process that has it; 0: none has."""
        user = self._user  # which the player takes away beside whoever reads
        return user[0].pid if user and user[0].poll() is None else 0

    def readings(self) -> dict[str, float]:
        """What NVML tells of the time since the last look."""
        mix = self._shares()
        return {
            reading.key(): sum(share * _H100[what][place] for what, share in mix.items())
            for place, reading in enumerate(_READINGS)
        }

    def _shares(self) -> dict[str, float]:
        """Of the time since the last look; the kernels of a stopped process end, if they can."""
        user = self._user
        if not user or user[0].poll() is not None:
            return {IDLE: 1.0}
        process, devices, rank = user
        now = devices.spent(rank)
        spent = {what: max(0.0, now[what] - self._before[what]) for what in now}
        self._before = now
        if _is_stopped(process.pid):
            spent[IDLE] += spent.pop(COMPUTES)
        whole = sum(spent.values())
        return {what: one / whole for what, one in spent.items()} if whole else {IDLE: 1.0}


class NodeGpus:
    """All of a node, and the recording from which its agent reads them."""

    def __init__(self, node: str, file: Path) -> None:
        self._file = file
        self._gpus = [Gpu(node, index) for index in range(GPUS_PER_NODE)]
        self.write()

    def take(self) -> Gpu | None:
        """One that nobody has."""
        free = next((gpu for gpu in self._gpus if not gpu.taken), None)
        if free:
            free.taken = True
        return free

    def write(self) -> None:
        """Tell what they do now."""
        tiers: dict[str, list[dict[str, Any]]] = {"fast": [], "medium": [], "slow": []}
        for gpu in self._gpus:
            row = {"gpu": str(gpu.index), "uuid": gpu.uuid}
            pid = gpu.pid()
            memory = {Reading.PROCESS_MEMORY.key(pid): _HOLDS_BYTES} if pid else {}
            used = {Reading.MEMORY_USED.key(): _HOLDS_BYTES if pid else 0}
            used[Reading.MEMORY_TOTAL.key()] = _TOTAL_BYTES
            tiers["fast"].append(row | {"values": gpu.readings() | used})
            tiers["medium"].append(
                row | {"values": {Reading.PROCESSES.key(): int(bool(pid))} | memory}
            )
            info = {"model": "NVIDIA H100 80GB HBM3", "minor": str(gpu.index)}
            limit = {Reading.POWER_LIMIT.key(): _LIMIT_WATTS}
            tiers["slow"].append(row | {"info": info, "values": limit})
        first = {"recording": 1, "interval": 1.0, "comment": "made up of what ranks say"}
        frame = {"driver": "", "tiers": {tier: {"gpus": rows} for tier, rows in tiers.items()}}
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{json.dumps(first)}\n{json.dumps(frame)}\n")
        draft.replace(self._file)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
