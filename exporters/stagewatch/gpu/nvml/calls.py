"""The calls that read one GPU, in three tiers by cost and rate of change.

A call yields readings with their values in base units. If the driver refuses it, it is not repeated
until the next round. So a call asks NVML for only one thing: an unsupported reading must not hide a
supported one. Most readings of the slower tiers are in `fields`, since NVML returns all of them in
one call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from stagewatch.gpu.readings import Key, Reading

Readings = Iterator[tuple[Key, float]]
Call = Callable[[Any, Any], Readings]
"""Takes the `pynvml` module and a device handle."""

MEGA = 1_000_000
MILLI = 1000
PERCENT = 100
ALL_BITS = -1
"""The answer of a GPU that is falling off the bus, as a signed number."""

MAX_PROCESSES = 64
"""Most processes per GPU with their own series; `gpu_processes` counts all."""

MAX_NVLINKS = 36


def number(
    reading: Reading,
    function: str,
    *constants: str,
    labels: tuple[str, ...] = (),
    times: int = 1,
    over: int = 1,
) -> Call:
    """A call of an NVML function that takes constants (by name) and returns one number."""
    key = reading.key(*labels)

    def call(nvml: Any, gpu: Any) -> Readings:
        value = getattr(nvml, function)(gpu, *(getattr(nvml, name) for name in constants))
        if isinstance(value, list):  # it also has a sampling period, or the setting to come
            value = value[0]
        yield key, value * times / over

    return call


_CLOCKS = {"graphics": "GRAPHICS", "sm": "SM", "memory": "MEM", "video": "VIDEO"}


def clock(domain: str) -> Call:
    constant = f"NVML_CLOCK_{_CLOCKS[domain]}"
    return number(Reading.CLOCK, "nvmlDeviceGetClockInfo", constant, labels=(domain,), times=MEGA)


def ecc_errors(scope: str) -> tuple[Call, ...]:
    return tuple(
        number(
            Reading.ECC_ERRORS,
            "nvmlDeviceGetMemoryErrorCounter",
            f"NVML_MEMORY_ERROR_TYPE_{kind.upper()}",
            f"NVML_{scope.upper()}_ECC",
            f"NVML_MEMORY_LOCATION_{memory.upper()}",
            labels=(memory, kind, scope),
        )
        for memory in ("dram", "sram")
        for kind in ("corrected", "uncorrected")
    )


def temperature_margin(nvml: Any, gpu: Any) -> Readings:
    margin = nvml.nvmlDeviceGetMarginTemperature(gpu)
    if margin != ALL_BITS:
        yield Reading.TEMPERATURE_MARGIN.key(), margin


def utilization(nvml: Any, gpu: Any) -> Readings:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    yield Reading.UTILIZATION.key(), rates.gpu / PERCENT


def memory_used(nvml: Any, gpu: Any) -> Readings:
    yield Reading.MEMORY_USED.key(), nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2).used


def memory_size(nvml: Any, gpu: Any) -> Readings:
    info = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
    yield Reading.MEMORY_RESERVED.key(), info.reserved
    yield Reading.MEMORY_TOTAL.key(), info.total


def performance_state(nvml: Any, gpu: Any) -> Readings:
    state = nvml.nvmlDeviceGetPerformanceState(gpu)
    if state != nvml.NVML_PSTATE_UNKNOWN:
        yield Reading.PERFORMANCE_STATE.key(), state


def processes(nvml: Any, gpu: Any) -> Readings:
    running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)
    memory = {process.pid: process.usedGpuMemory for process in running}
    yield Reading.PROCESSES.key(), len(memory)
    for pid, used in list(memory.items())[:MAX_PROCESSES]:
        if used is not None:
            yield Reading.PROCESS_MEMORY.key(pid), used


_THROTTLE_BITS = (  # nvmlClocksEventReason*; idling and clocks set by the user are no throttling
    ("sw_power_cap", 0x04),
    ("hw_slowdown", 0x08),
    ("sync_boost", 0x10),
    ("sw_thermal", 0x20),
    ("hw_thermal", 0x40),
    ("hw_power_brake", 0x80),
)
_ALL_THROTTLE_BITS = 0xFFFF
"""More bits than exist; a GPU that is falling off the bus answers with all bits set."""


def throttling(nvml: Any, gpu: Any) -> Readings:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    if reasons <= _ALL_THROTTLE_BITS:
        for name, bit in _THROTTLE_BITS:
            yield Reading.THROTTLE_ACTIVE.key(name), int(bool(reasons & bit))


def sram_threshold(nvml: Any, gpu: Any) -> Readings:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = nvml.nvmlEccSramErrorStatus_v1
    nvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
    yield Reading.SRAM_THRESHOLD.key(), status.bThresholdExceeded


def spare_rows(nvml: Any, gpu: Any) -> Readings:
    banks = nvml.nvmlDeviceGetRowRemapperHistogram(gpu)
    for name in ("max", "high", "partial", "low", "none"):
        yield Reading.REMAP_BANKS.key(name), getattr(banks, name)


def nvlinks(nvml: Any, gpu: Any) -> Readings:
    links_up = 0
    for link in range(MAX_NVLINKS):
        try:
            up = nvml.nvmlDeviceGetNvLinkState(gpu, link)
        except nvml.NVMLError_InvalidArgument:
            if link == 0:
                return
            break  # past this GPU's last link
        except nvml.NVMLError_NotSupported:
            if link == 0:
                raise
            continue  # a link that this board does not wire up
        yield Reading.NVLINK_UP.key(link), up
        links_up += up
    yield Reading.NVLINKS_UP.key(), links_up


_FABRIC_HEALTH = (  # NVML_GPU_FABRIC_HEALTH_MASK_*: two bits each, 1 true, 2 false
    ("degraded_bandwidth", 0),
    ("route_recovery", 2),
    ("route_unhealthy", 4),
    ("access_timeout_recovery", 6),
)


def fabric(nvml: Any, gpu: Any) -> Readings:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = nvml.nvmlGpuFabricInfo_v2
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(info))
    if info.state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return
    yield Reading.FABRIC_STATE.key(), info.state
    completed = info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED
    if completed and info.status <= nvml.NVML_ERROR_UNKNOWN:  # beyond it there is no error
        yield Reading.FABRIC_FAILED.key(), int(info.status != nvml.NVML_SUCCESS)
    for name, shift in _FABRIC_HEALTH:
        answer = info.healthMask >> shift & 3
        if answer in (1, 2):
            yield Reading.FABRIC_UNHEALTHY.key(name), int(answer == 1)
    configuration = info.healthMask >> 8 & 0xF  # 1 is none, 2 to 8 what is incorrect about it
    if configuration in range(1, 9):
        yield Reading.FABRIC_UNHEALTHY.key("incorrect_configuration"), int(configuration != 1)


TIERS: dict[str, tuple[Call, ...]] = {
    "fast": (
        number(Reading.TEMPERATURE, "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
        number(Reading.POWER, "nvmlDeviceGetPowerUsage", over=MILLI),
        utilization,
        memory_used,
        clock("sm"),
    ),
    "medium": (
        temperature_margin,
        memory_size,
        clock("memory"),
        number(Reading.POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", over=MILLI),
        performance_state,
        clock("graphics"),
        clock("video"),
        number(Reading.PCIE_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration"),
        number(Reading.PCIE_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth"),
        processes,
        throttling,
        *ecc_errors("volatile"),
    ),
    "slow": (
        *(
            number(reading, "nvmlDeviceGetTemperatureThreshold", f"NVML_TEMPERATURE_THRESHOLD_{at}")
            for reading, at in (
                (Reading.TEMPERATURE_SLOWDOWN, "SLOWDOWN"),
                (Reading.TEMPERATURE_SHUTDOWN, "SHUTDOWN"),
                (Reading.MEMORY_TEMPERATURE_LIMIT, "MEM_MAX"),
            )
        ),
        number(Reading.PCIE_GENERATION_MAX, "nvmlDeviceGetMaxPcieLinkGeneration"),
        number(Reading.PCIE_WIDTH_MAX, "nvmlDeviceGetMaxPcieLinkWidth"),
        number(Reading.PERSISTENCE_MODE, "nvmlDeviceGetPersistenceMode"),
        *ecc_errors("aggregate"),
        sram_threshold,
        spare_rows,
        nvlinks,
        fabric,
    ),
}

MIG_TIERS: dict[str, tuple[Call, ...]] = {
    "fast": (memory_used,),
    "medium": (memory_size, processes),
    "slow": (),
}
"""The calls for a MIG instance, which has no sensors."""
