"""What a GPU has done in the last seconds: compute, move bytes, or only spin.

By `gpu_utilization_ratio` and by its SMs, a kernel that waits for its peers looks as busy as one
that computes. Tensor cores and memory, or the power draw, tell them apart. The thresholds below
come from data sheets and reports; nobody has measured them for this purpose.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean
from typing import Any

from stagewatch.gpu.readings import Reading

WINDOW_SECONDS = 10.0
"""The window; its mean readings decide."""
LEAST_READINGS = 3
BUSY = 0.05
"""Share of time from which kernels count as running."""
TENSOR, DRAM = 0.01, 0.05
"""Activity of tensor cores, and of memory, from which a GPU counts as computing: NCCL's kernels use
no tensor cores, and poll only a few words."""
POWER = 0.45
"""Share of the power limit from which a GPU counts as computing, if its activity is unknown:
spinning kernels draw at most a third of the limit."""
BYTES_PER_SECOND = 1e9
"""Throughput of NVLink or PCIe from which bytes count as moving; polling flags in host memory stays
below it."""


class Device(str, Enum):
    """What a GPU does."""

    WORKS = "works"
    """It computes: its tensor cores or its memory are active, or its power draw is high."""
    MOVES = "moves"
    """Its kernels move bytes to or from it, and compute nothing."""
    SPINS = "spins"
    """Its kernels neither compute nor move bytes: they wait."""
    IDLE = "idle"
    """No kernel runs."""
    LOST = "lost"
    """The driver no longer reaches it."""


_SHARES = (
    *(Reading.UTILIZATION, Reading.SM_ACTIVE, Reading.TENSOR_ACTIVE, Reading.DRAM_ACTIVE),
    Reading.POWER,
)
_SHARE_KEYS = tuple((reading, reading.key()) for reading in _SHARES)
_THROUGHPUT = tuple(
    reading.key(direction)
    for reading in (Reading.NVLINK_THROUGHPUT, Reading.PCIE_THROUGHPUT)
    for direction in ("tx", "rx")
)


@dataclass(slots=True)
class _Gpu:
    """The readings of one GPU."""

    window: deque[tuple[float, dict[Reading, float]]] = field(default_factory=deque)
    """Readings of the fast tier; `NVLINK_THROUGHPUT` is the highest throughput of any link."""
    power_limit: float | None = None
    processes: int | None = None
    lost: bool = False


class DeviceStates:
    """Collects the driver's frames, and says what every GPU does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gpus: dict[str, _Gpu] = {}

    def note(self, tier: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add one tier of a frame; forget GPUs that it lacks."""
        now = self._clock()
        gpus = {}
        for row in rows:
            if not row["uuid"]:
                continue
            gpu = gpus[row["uuid"]] = self._gpus.get(row["uuid"]) or _Gpu()
            gpu.lost = bool(row.get("lost"))
            values = row["values"]
            if tier == "fast":
                self._read(gpu, values, now)
            elif tier == "medium":
                count = values.get(Reading.PROCESSES.key())
                gpu.processes = None if count is None else int(count)
            gpu.power_limit = values.get(Reading.POWER_LIMIT.key(), gpu.power_limit)
        self._gpus = gpus

    def clear(self) -> None:
        """Forget all GPUs."""
        self._gpus = {}

    def state(self, uuid: str) -> Device | None:
        """What a GPU or MIG instance does; `None` if unknown, as for a GPU of several processes."""
        gpu = self._gpus.get(uuid)
        if gpu is None:
            return None
        if gpu.lost:
            return Device.LOST
        since = self._clock() - WINDOW_SECONDS
        looks = [values for when, values in gpu.window if when > since]
        if len(looks) < LEAST_READINGS:
            return None
        means = {
            reading: fmean(known)
            for reading in (*_SHARES, Reading.NVLINK_THROUGHPUT)
            if (known := [values[reading] for values in looks if reading in values])
        }
        busy = means.get(Reading.UTILIZATION, means.get(Reading.SM_ACTIVE))
        if busy is None:
            return None
        if busy < BUSY:
            return Device.IDLE
        return _busy(means, gpu.power_limit) if gpu.processes in (None, 0, 1) else None

    @staticmethod
    def _read(gpu: _Gpu, values: Mapping[str, float], now: float) -> None:
        known = {one: values[key] for one, key in _SHARE_KEYS if key in values}
        moved = [values[key] for key in _THROUGHPUT if key in values]
        if moved:
            known[Reading.NVLINK_THROUGHPUT] = max(moved)
        gpu.window.append((now, known))
        while now - gpu.window[0][0] > WINDOW_SECONDS:
            gpu.window.popleft()


def _busy(means: Mapping[Reading, float], power_limit: float | None) -> Device | None:
    """What a GPU with running kernels does."""
    tensor, dram = means.get(Reading.TENSOR_ACTIVE), means.get(Reading.DRAM_ACTIVE)
    power = means.get(Reading.POWER)
    if tensor is not None and dram is not None:
        works = tensor >= TENSOR or dram >= DRAM
    elif power is not None and power_limit:
        works = power >= POWER * power_limit
    else:
        return None
    if works:
        return Device.WORKS
    moves = means.get(Reading.NVLINK_THROUGHPUT, 0.0) >= BYTES_PER_SECOND
    return Device.MOVES if moves else Device.SPINS
