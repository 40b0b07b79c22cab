"""The last ten minutes of every GPU, for the small curves of the status page.

The collector adds its readings, and the page reads means over slots of time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stagewatch.core.exposition import Histogram, Labels, Samples
from stagewatch.gpu.readings import Reading

SPAN_SECONDS = 600.0
SLOTS = 60
MAX_GPUS = 64
"""GPUs and MIG instances with a history; a node has at most 16 GPUs of 7 instances."""

READINGS = (Reading.TEMPERATURE.metric, Reading.UTILIZATION.metric)

_SLOT = SPAN_SECONDS / SLOTS
Histories = Mapping[tuple[str, Labels], Sequence[float | None]]
"""Means of the slots up to now, by the metric's name and labels; None for slots without "
"readings."""


@dataclass(slots=True)
class _Mean:
    """The readings of one slot."""

    slot: int
    total: float
    count: int


class GpuHistory:
    """Keeps the readings of the last ten minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._of: dict[tuple[str, Labels], deque[_Mean]] = {}

    def note(self, samples: Samples) -> None:
        """Add the readings of one collection, for at most `MAX_GPUS`."""
        slot = int(self._clock() / _SLOT)
        with self._lock:
            self._forget(slot)
            for metric in READINGS:
                for labels, value in samples.families.get(metric, {}).items():
                    if not isinstance(value, Histogram):
                        self._add((metric.name, labels), slot, value)

    def __call__(self) -> Histories:
        """The histories as of now."""
        first = int(self._clock() / _SLOT) - SLOTS + 1
        with self._lock:
            return {key: _slots(means, first) for key, means in self._of.items()}

    def _add(self, key: tuple[str, Labels], slot: int, value: float) -> None:
        means = self._of.get(key)
        if means is None:
            if len(self._of) >= MAX_GPUS * len(READINGS):
                return
            means = self._of[key] = deque(maxlen=SLOTS)
        if means and means[-1].slot == slot:
            means[-1].total += value
            means[-1].count += 1
        else:
            means.append(_Mean(slot, value, 1))

    def _forget(self, slot: int) -> None:
        """Remove GPUs without readings in the last ten minutes."""
        for key in [key for key, means in self._of.items() if means[-1].slot <= slot - SLOTS]:
            del self._of[key]


def _slots(means: deque[_Mean], first: int) -> list[float | None]:
    values: list[float | None] = [None] * SLOTS
    for mean in means:
        if 0 <= mean.slot - first < SLOTS:
            values[mean.slot - first] = mean.total / mean.count
    return values
