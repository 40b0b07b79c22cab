"""Profiling without DCGM: GPU Performance Monitoring, on Hopper and later.

A metric is an average between two samples. Every tick takes one sample per GPU and compares it with
the previous tick's sample: nothing sleeps, and no time between ticks is lost.
NVML: nvmlGpmSampleGet, nvmlGpmMetricsGet; one thread only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from stagewatch.gpu.nvml.answers import blank, member, set_member
from stagewatch.gpu.readings import Key, Reading

SHORTEST = 0.1
"""Shortest time between two samples in seconds, as NVML requires."""

LONGEST = 60.0
"""Longest time between two samples in seconds; a longer average does not describe the present."""

_PERCENT = 100.0
_MIB = 1 / (1024 * 1024)

# By NVML_GPM_METRIC_* id: the metric, and how much of the raw value is one base unit.
METRICS: dict[int, tuple[Key, float]] = {
    2: (Reading.SM_ACTIVE.key(), _PERCENT),  # SM_UTIL
    3: (Reading.SM_OCCUPANCY.key(), _PERCENT),  # SM_OCCUPANCY
    5: (Reading.TENSOR_ACTIVE.key(), _PERCENT),  # ANY_TENSOR_UTIL
    10: (Reading.DRAM_ACTIVE.key(), _PERCENT),  # DRAM_BW_UTIL
    20: (Reading.PCIE_THROUGHPUT.key("tx"), _MIB),  # PCIE_TX_PER_SEC
    21: (Reading.PCIE_THROUGHPUT.key("rx"), _MIB),  # PCIE_RX_PER_SEC
    60: (Reading.NVLINK_THROUGHPUT.key("rx"), _MIB),  # NVLINK_TOTAL_RX_PER_SEC
    61: (Reading.NVLINK_THROUGHPUT.key("tx"), _MIB),  # NVLINK_TOTAL_TX_PER_SEC
}


@dataclass(slots=True)
class Profile:
    """The samples of one GPU or MIG instance."""

    before: Any
    after: Any
    taken: float | None = None
    refused: dict[int, int] = field(default_factory=dict)


class Gpm:
    """All profiles of a session.

    `sample` raises the driver's errors; it omits a single metric that the driver refuses.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._asked: dict[int, Any] = {}
        """The metrics that the request names, with their places in it."""

    def open(self, gpu: Any) -> Profile | None:
        """A profile for a GPU, or None if it has no profiling."""
        if not self._nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            return None
        return Profile(self._nvml.nvmlGpmSampleAlloc(), self._nvml.nvmlGpmSampleAlloc())

    def close(self, profile: Profile) -> None:
        """Free the samples of a GPU that is gone."""
        for sample in (profile.before, profile.after):
            self._nvml.nvmlGpmSampleFree(sample)

    def sample(
        self, profile: Profile, gpu: Any, instance: int | None, round: int
    ) -> dict[Key, float]:
        """The averages since the last sample; empty for the first sample and after a gap.

        `instance` is the id of a MIG GPU instance of `gpu`.  A metric that the driver refused is
        tried again in the next `round`.
        """
        now = time.monotonic()
        if profile.taken is not None and now - profile.taken < SHORTEST:
            return {}
        if instance is None:
            self._nvml.nvmlGpmSampleGet(gpu, profile.after)
        else:
            self._nvml.nvmlGpmMigSampleGet(gpu, instance, profile.after)
        values: dict[Key, float] = {}
        if profile.taken is not None and now - profile.taken <= LONGEST:
            values = self._averages(profile, round)
        profile.before, profile.after = profile.after, profile.before
        profile.taken = now
        return values

    def _averages(self, profile: Profile, round: int) -> dict[Key, float]:
        ids = [id for id in METRICS if profile.refused.get(id) != round]
        request = self._request
        if ids != [*self._asked]:
            request.numMetrics = len(ids)
            self._asked = dict(zip(ids, request.metrics, strict=False))
            for id, metric in self._asked.items():
                metric.metricId = id
        set_member(request, "sample1", profile.before)
        set_member(request, "sample2", profile.after)
        self._nvml.nvmlGpmMetricsGet(request)
        values = {}
        for id, metric in self._asked.items():
            if member(metric, "nvmlReturn") == 0:
                profile.refused.pop(id, None)
                value = member(metric, "value")
                if not blank(value, None):
                    name, per_unit = METRICS[id]
                    values[name] = value / per_unit
            else:
                profile.refused[id] = round
        return values
