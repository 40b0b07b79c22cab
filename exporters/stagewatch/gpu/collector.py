"""GPUs, read through NVML by a child process, or replayed from a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from stagewatch.core.collector import Collector, Declaration
from stagewatch.core.config import option, path
from stagewatch.core.exposition import Samples, gauge
from stagewatch.core.runner import STALE_AFTER
from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.model_names import gpu_type
from stagewatch.gpu.peak_flops import peak_flops
from stagewatch.gpu.reader import GpuReader, Released
from stagewatch.gpu.readings import GPU, parse
from stagewatch.gpu.xids import XidLedger, bus_key

INFO = gauge(
    "gpu_info",
    "Identity of a GPU or MIG instance: 1.  type is the normalised short name; source is nvml for "
    "a real device and recorded for readings replayed from a file.",
    (*GPU, "model", "type", "minor", "pci_bus_id", "driver", "vbios", "serial", "source"),
)
PEAK = gauge(
    "gpu_peak_flops",
    "Operations per second with dense matrices, by the model's data sheet; absent for models that "
    "are not listed.",
    (*GPU, "precision"),
)
UP = gauge("gpu_up", "1 if the driver reaches the GPU, 0 if it has lost it.", GPU)
RELEASED = gauge(
    "stagewatch_gpu_reader_released",
    "1 while the agent has released the GPUs on request (the release file exists).",
)
TIER_DURATION = gauge(
    "stagewatch_gpu_tier_duration_seconds",
    "Time that the driver took to answer all calls of a tier, for all GPUs.",
    ("tier",),
)

INTERVALS = {"fast": 1.0, "medium": 10.0, "slow": 60.0}
"""Seconds between two readings: fast for what says whether a GPU works; medium for other values,
links, errors and processes; slow for identity, limits and modes."""


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """Options of the `gpu` collector."""

    timeout: float = option(5.0, "timeout of a driver call")
    release_file: Path = option(
        Path("/run/stagewatch/release-gpu"), "release the GPUs while this file exists"
    )
    recording: Path | None = option(
        None, "replay GPU readings from this file instead of reading the driver", parse=path
    )


class Reader(Protocol):
    """A source of frames: the driver or a recording."""

    def read(self, tiers: Sequence[str]) -> dict[str, Any]:
        """A frame of these tiers."""

    def close(self) -> None:
        """End, without waiting for the driver."""


class GpuCollector(Collector):
    """Asks the reader for the fast tier every time, and for the other tiers when they are due."""

    def __init__(
        self,
        reader: Reader,
        *,
        source: Literal["nvml", "recorded"],
        intervals: Mapping[str, float],
        xids: XidLedger | None = None,
        directory: GpuDirectory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._source = source
        self._intervals = intervals
        self._xids = XidLedger() if xids is None else xids
        self._directory = GpuDirectory() if directory is None else directory
        self._clock = clock
        self._tiers: dict[str, tuple[float, Samples]] = {}

    def collect(self) -> Samples:
        """The current fast tier, and the last reading of the other tiers.

        Raises `Stuck` while the driver does not answer, `NoData` if there is no GPU.
        """
        now = self._clock()
        due = [tier for tier in self._intervals if self._due(tier, now)]
        out = Samples()
        try:
            frame = self._reader.read(due)
        except Released:
            self._tiers.clear()
            self._directory.clear()
            out.add(RELEASED, 1)
            return out
        out.add(RELEASED, 0)
        for tier, content in frame["tiers"].items():
            self._tiers[tier] = (now, self._samples(tier, content, frame["driver"]))
            self._directory.update(tier, content["gpus"])
        for event in frame.get("xids", ()):
            self._xids.note("nvml", bus_key(event["pci_bus_id"]), event["xid"], event["time"])
        for tier, (taken, samples) in self._tiers.items():
            if now - taken <= STALE_AFTER * self._intervals[tier]:
                _include(out, samples)
        return out

    def close(self) -> None:
        """End the reader process."""
        self._reader.close()

    def _due(self, tier: str, now: float) -> bool:
        last = self._tiers.get(tier)
        if tier == "fast" or last is None:
            return True
        # Half a tick early counts as due: collections follow the grid of the fast tier's interval.
        return now - last[0] >= self._intervals[tier] - self._intervals["fast"] / 2

    def _samples(self, tier: str, content: Mapping[str, Any], driver: str) -> Samples:
        out = Samples()
        out.add(TIER_DURATION, content["seconds"], tier)
        for row in content["gpus"]:
            gpu = (row["gpu"], row["uuid"], row.get("mig", ""))
            if tier == "fast":
                out.add(UP, 0 if row.get("lost") else 1, *gpu)
            if "info" in row:
                self._identify(out, gpu, row["info"], driver)
            for key, value in row["values"].items():
                reading, labels = parse(key)
                out.add(reading.metric, value, *gpu, *labels)
        return out

    def _identify(
        self, out: Samples, gpu: tuple[str, str, str], info: Mapping[str, str], driver: str
    ) -> None:
        model, bus = info.get("model", ""), info.get("pci_bus_id", "")
        minor, vbios, serial = (info.get(name, "") for name in ("minor", "vbios", "serial"))
        kind = gpu_type(model)
        out.add(INFO, 1, *gpu, model, kind, minor, bus, driver, vbios, serial, self._source)
        index, uuid, mig = gpu
        if not mig:
            for precision, peak in peak_flops(model).items():
                out.add(PEAK, peak, *gpu, precision)
        if bus and not mig:
            self._xids.identify(bus_key(bus), index, uuid)


def _include(out: Samples, part: Samples) -> None:
    """Add a tier's samples without copying them: most metrics belong to one tier only."""
    for metric, family in part.families.items():
        before = out.families.get(metric)
        out.families[metric] = family if before is None else {**before, **family}
    out.dropped += part.dropped


def collector(
    options: GpuOptions,
    xids: XidLedger | None = None,
    directory: GpuDirectory | None = None,
) -> GpuCollector:
    """The collector, with the driver or a recording as its reader."""
    reader: Reader
    if options.recording is not None:
        from stagewatch.gpu.recording import RecordedReader

        reader = RecordedReader(options.recording)
    else:
        reader = GpuReader(timeout=options.timeout, release_file=options.release_file)
    return GpuCollector(
        reader,
        source="nvml" if options.recording is None else "recorded",
        xids=xids,
        directory=directory,
        intervals=INTERVALS,
    )


SPEC = Declaration(
    name="gpu",
    page="gpus",
    help="GPUs through NVML: readings, limits, links, errors, processes",
    interval=INTERVALS["fast"],
    options=GpuOptions,
)
