"""All readings of a GPU: the metric, and the key that the reader process uses.

To add one, declare it here and yield it in `stagewatch.gpu.nvml`: `calls`, `fields` or `gpm`.
The reader process makes its keys from these members, and `parse` maps them back; so it can send
only declared readings.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NewType

from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Metric
from stagewatch.core.words import printable

GPU = ("gpu", "uuid", "mig")
"""NVML index, UUID, and for a MIG instance its GPU and compute instance ids as `GI:CI`.

Every series about a GPU begins with these labels.  Series without `mig` are about a whole GPU;
those of instances are parts of it.
"""

Key = NewType("Key", str)
"""The name of a metric, then the values of its additional labels, separated by slashes."""


class Reading(Enum):
    """A metric's name (with its unit at the end), its help, and its labels besides `GPU`."""

    TEMPERATURE = "gpu_temperature_celsius", "Temperature of the GPU die."
    MEMORY_TEMPERATURE = "gpu_memory_temperature_celsius", "Temperature of the device memory."
    TEMPERATURE_SLOWDOWN = (
        "gpu_temperature_slowdown_celsius",
        "Temperature at which the GPU slows down.",
    )
    TEMPERATURE_MARGIN = (
        "gpu_temperature_margin_celsius",
        "Degrees left until the GPU slows down; newer devices give this instead of the limit.",
    )
    TEMPERATURE_MARGIN_LIMIT = (
        "gpu_temperature_margin_limit_celsius",
        "gpu_temperature_margin_celsius at which the GPU shuts down, slows down in hardware, "
        "slows down because of its memory, or may fall below its base clock (operating).",
        "limit",
    )
    TEMPERATURE_SHUTDOWN = (
        "gpu_temperature_shutdown_celsius",
        "Temperature at which the GPU shuts down, and falls off the bus.",
    )
    MEMORY_TEMPERATURE_LIMIT = (
        "gpu_memory_temperature_limit_celsius",
        "Highest temperature of the memory.",
    )
    POWER = "gpu_power_watts", "Power draw, averaged over a second on Ampere and later."
    POWER_LIMIT = "gpu_power_limit_watts", "Power limit in force."
    ENERGY = "gpu_energy_joules_total", "Energy since the driver was loaded."
    CLOCK = "gpu_clock_hertz", "Current clock.", "domain"
    UTILIZATION = (
        "gpu_utilization_ratio",
        "Share of the last sample period in which any kernel ran; it does not say how much of the "
        "GPU the kernel used.",
    )
    MEMORY_USED = "gpu_memory_used_bytes", "Device memory in use, without the driver's reserve."
    MEMORY_RESERVED = "gpu_memory_reserved_bytes", "Device memory the driver keeps to itself."
    MEMORY_TOTAL = "gpu_memory_total_bytes", "Device memory."
    PERFORMANCE_STATE = "gpu_performance_state", "Performance state, 0 (fastest) to 15."
    PERSISTENCE_MODE = "gpu_persistence_mode", "1 if persistence mode is on."
    PROCESSES = "gpu_processes", "Processes with a compute context."
    PROCESS_MEMORY = (
        "gpu_process_memory_bytes",
        "Device memory of a process: it shows who holds the memory when a job runs out.",
        "pid",
    )
    CALL_ERRORS = (
        "gpu_driver_call_errors_total",
        "Calls that the driver failed, without those that it does not support: while this rises, "
        "the driver is in trouble.",
    )
    UNSUPPORTED = (
        "gpu_driver_unsupported",
        "Readings that the driver does not support on this GPU: the reason for missing series.",
    )

    # What the parts of a GPU are busy with, from NVML's performance monitoring (Hopper and later).
    # Shares are averages over the time since the collection before.
    SM_ACTIVE = (
        "gpu_sm_active_ratio",
        "Share of time an SM had at least one warp, averaged over the SMs.",
    )
    SM_OCCUPANCY = (
        "gpu_sm_occupancy_ratio",
        "Warps resident on the SMs over the most they can hold.",
    )
    TENSOR_ACTIVE = (
        "gpu_tensor_active_ratio",
        "Share of time the SMs' tensor cores worked, at any precision.",
    )
    DRAM_ACTIVE = (
        "gpu_dram_active_ratio",
        "Device memory bandwidth in use over its theoretical maximum.",
    )
    PCIE_THROUGHPUT = (
        "gpu_pcie_throughput_bytes_per_second",
        "PCIe traffic; tx is from the GPU.",
        "direction",
    )
    NVLINK_THROUGHPUT = (
        "gpu_nvlink_throughput_bytes_per_second",
        "NVLink traffic over all links; tx is from the GPU.",
        "direction",
    )

    # What is or goes wrong: throttling, memory errors and repairs, links, fabric.
    THROTTLE = (
        "gpu_throttle_seconds_total",
        "Time the GPU was slowed down, by reason; reasons may hold at the same time.",
        "reason",
    )
    THROTTLE_ACTIVE = "gpu_throttle_active", "1 if the GPU is being slowed down now.", "reason"
    ECC_ERRORS = (
        "gpu_ecc_errors_total",
        "ECC errors in dram or sram, corrected or uncorrected; volatile counts since the "
        "driver was loaded, aggregate over the GPU's life.",
        "memory",
        "kind",
        "scope",
    )
    SRAM_THRESHOLD = (
        "gpu_sram_ecc_threshold_exceeded",
        "1 if uncorrectable SRAM errors have passed the vendor's limit for replacing the GPU.",
    )
    REMAPPED_ROWS = "gpu_remapped_rows", "Rows replaced by spares, by kind of error.", "kind"
    REMAP_PENDING = "gpu_remap_pending", "1 if a row is to be replaced at the next reset."
    REMAP_FAILED = "gpu_remap_failed", "1 if replacing a row has failed."
    REMAP_BANKS = (
        "gpu_remap_banks",
        "Memory banks by the number of spare rows that they have left.",
        "spares",
    )
    RETIRED_PAGES = (
        "gpu_retired_pages",
        "Retired pages, before Ampere; with many of them, replace the board.",
        "cause",
    )
    RETIRED_PAGES_PENDING = (
        "gpu_retired_pages_pending",
        "1 if a page is to be retired at the next reset.",
    )
    RECOVERY_ACTION = (
        "gpu_recovery_action",
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peers, 4 drain and "
        "reset, 5 recover the IMEX domain, 6 reset the bus, 7 reboot the system.",
    )
    NVLINK_UP = "gpu_nvlink_up", "1 if the NVLink is active.", "link"
    NVLINKS_UP = "gpu_nvlinks_up", "NVLinks of the GPU that are active."
    NVLINK_BYTES = (
        "gpu_nvlink_bytes_total",
        "NVLink data over all links; tx is from the GPU.",
        "direction",
    )
    NVLINK_ERRORS = "gpu_nvlink_errors_total", "NVLink errors over all links.", "kind"
    PCIE_BYTES = "gpu_pcie_bytes_total", "PCIe data; tx is from the GPU.", "direction"
    PCIE_REPLAYS = "gpu_pcie_replays_total", "PCIe packets that were resent."
    PCIE_GENERATION = (
        "gpu_pcie_link_generation",
        "PCIe generation in use; an idle GPU may step down.",
    )
    PCIE_GENERATION_MAX = (
        "gpu_pcie_link_generation_max",
        "Highest PCIe generation of this GPU and slot.",
    )
    PCIE_WIDTH = "gpu_pcie_link_width", "PCIe lanes in use."
    PCIE_WIDTH_MAX = "gpu_pcie_link_width_max", "Most PCIe lanes of this GPU and slot."
    FABRIC_STATE = (
        "gpu_fabric_state",
        "Registration with the NVSwitch fabric: 1 not started, 2 in progress, 3 completed.",
    )
    FABRIC_FAILED = "gpu_fabric_failed", "1 if registration with the fabric ended in an error."
    FABRIC_UNHEALTHY = "gpu_fabric_unhealthy", "1 if the fabric reports the condition.", "condition"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.metric = Metric(
            name, "counter" if name.endswith("_total") else "gauge", help, (*GPU, *labels)
        )

    def key(self, *labels: object) -> Key:
        """The key of this reading in a frame, with the values of its additional labels."""
        return _key(self.metric, *labels)


@lru_cache(maxsize=4096)
def _key(metric: Metric, *labels: object) -> Key:
    if len(labels) != len(metric.labels) - len(GPU):
        raise ValueError(f"{metric.name} takes the labels {metric.labels}")
    return Key("/".join((metric.name, *map(str, labels))))


METRICS = {reading.metric.name: reading.metric for reading in Reading}
_READINGS = {reading.metric.name: reading for reading in Reading}


@lru_cache(maxsize=4096)
def parse(key: str) -> tuple[Reading, tuple[str, ...]]:
    """The reading of a key, and the values of its additional labels.

    Raises `SourceError` if it is not declared: the frame comes from another version.
    """
    name, *labels = key.split("/")
    reading = _READINGS.get(name)
    if reading is None or len(labels) != len(reading.metric.labels) - len(GPU):
        raise SourceError(
            f"{printable(key, 100)!r} is no reading of this version of stagewatch: restart the "
            "agent after an upgrade, or replace the recording"
        )
    return reading, tuple(labels)
