"""Readings about the health of a GPU: memory errors, links, fabric, throttling."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

Readings = Iterator[tuple[str, float]]

_THROTTLE_BITS = (  # nvmlClocksEventReason*; idling and clocks set by the user are no throttling
    ("sw_power_cap", 0x04),
    ("hw_slowdown", 0x08),
    ("sync_boost", 0x10),
    ("sw_thermal", 0x20),
    ("hw_thermal", 0x40),
    ("hw_power_brake", 0x80),
)


def throttling(nvml: Any, gpu: Any) -> Readings:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    for name, bit in _THROTTLE_BITS:
        yield f"gpu_throttle_active/{name}", int(bool(reasons & bit))


def _ecc(nvml: Any, gpu: Any, counter: int, scope: str) -> Readings:
    locations = (("dram", nvml.NVML_MEMORY_LOCATION_DRAM), ("sram", nvml.NVML_MEMORY_LOCATION_SRAM))
    kinds = (
        ("corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ("uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )
    for memory, location in locations:
        for kind, error in kinds:
            count = nvml.nvmlDeviceGetMemoryErrorCounter(gpu, error, counter, location)
            yield f"gpu_ecc_errors_total/{memory}/{kind}/{scope}", count


def ecc_volatile(nvml: Any, gpu: Any) -> Readings:
    return _ecc(nvml, gpu, nvml.NVML_VOLATILE_ECC, "volatile")


def ecc_aggregate(nvml: Any, gpu: Any) -> Readings:
    return _ecc(nvml, gpu, nvml.NVML_AGGREGATE_ECC, "aggregate")


def ecc_mode(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_ecc_mode", nvml.nvmlDeviceGetEccMode(gpu)[0]


def sram_threshold(nvml: Any, gpu: Any) -> Readings:
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = nvml.nvmlEccSramErrorStatus_v1
    nvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
    yield "gpu_sram_ecc_threshold_exceeded", status.bThresholdExceeded


def spare_rows(nvml: Any, gpu: Any) -> Readings:
    banks = nvml.nvmlDeviceGetRowRemapperHistogram(gpu)
    for name in ("max", "high", "partial", "low", "none"):
        yield f"gpu_remap_banks/{name}", getattr(banks, name)


def nvlinks(nvml: Any, gpu: Any) -> Readings:
    for link in range(MAX_NVLINKS):
        try:
            up = nvml.nvmlDeviceGetNvLinkState(gpu, link)
        except nvml.NVMLError_InvalidArgument:
            return  # past this GPU's last link
        except nvml.NVMLError_NotSupported:
            if link == 0:
                raise
            continue  # a link that this board does not wire up
        yield f"gpu_nvlink_up/{link}", up


MAX_NVLINKS = 36

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
    yield "gpu_fabric_state", info.state
    if info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        yield "gpu_fabric_failed", int(info.status != nvml.NVML_SUCCESS)
    for name, shift in _FABRIC_HEALTH:
        answer = info.healthMask >> shift & 3
        if answer in (1, 2):
            yield f"gpu_fabric_unhealthy/{name}", int(answer == 1)
