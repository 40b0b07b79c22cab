"""Readings about the health of a GPU: memory errors, links, fabric, throttling."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

Readings = Iterator[tuple[str, float]]
Reader = Callable[[Any, Any], Readings]
"""Takes the `pynvml` module and a device handle."""

_THROTTLE_BITS = (  # nvmlClocksEventReason*; idling and clocks set by the user are no throttling
    ("sw_power_cap", 0x04),
    ("hw_slowdown", 0x08),
    ("sync_boost", 0x10),
    ("sw_thermal", 0x20),
    ("hw_thermal", 0x40),
    ("hw_power_brake", 0x80),
)


_ALL_THROTTLE_BITS = 0xFFFF
"""More than there are; a GPU that is going off the bus answers with all bits set."""


def throttling(nvml: Any, gpu: Any) -> Readings:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    if reasons <= _ALL_THROTTLE_BITS:
        for name, bit in _THROTTLE_BITS:
            yield f"gpu_throttle_active/{name}", int(bool(reasons & bit))


def _ecc(memory: str, kind: str, scope: str) -> Reader:
    def read(nvml: Any, gpu: Any) -> Readings:
        count = nvml.nvmlDeviceGetMemoryErrorCounter(
            gpu,
            getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind.upper()}"),
            getattr(nvml, f"NVML_{scope.upper()}_ECC"),
            getattr(nvml, f"NVML_MEMORY_LOCATION_{memory.upper()}"),
        )
        yield f"gpu_ecc_errors_total/{memory}/{kind}/{scope}", count

    return read


_ECC_KINDS = tuple(product(("dram", "sram"), ("corrected", "uncorrected")))
ECC_VOLATILE = tuple(_ecc(memory, kind, "volatile") for memory, kind in _ECC_KINDS)
ECC_AGGREGATE = tuple(_ecc(memory, kind, "aggregate") for memory, kind in _ECC_KINDS)


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
    completed = info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED
    if completed and info.status <= nvml.NVML_ERROR_UNKNOWN:  # beyond it there is no error
        yield "gpu_fabric_failed", int(info.status != nvml.NVML_SUCCESS)
    for name, shift in _FABRIC_HEALTH:
        answer = info.healthMask >> shift & 3
        if answer in (1, 2):
            yield f"gpu_fabric_unhealthy/{name}", int(answer == 1)
    configuration = info.healthMask >> 8 & 0xF  # 1 is none, 2 to 8 what is incorrect about it
    if configuration in range(1, 9):
        yield "gpu_fabric_unhealthy/incorrect_configuration", int(configuration != 1)
