"""What is asked of one GPU, call by call, in three tiers by cost and by how fast it changes.

A reader is a generator over `(metric name, value in base units)`; it is also the unit of "not
supported": when the driver refuses it, it is left out until the next look at what there is.
Most of what is asked once in a while is in `fields`, since that needs one call for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stagewatch.sources.nvml import health
from stagewatch.sources.nvml.health import Readings

Reader = Callable[[Any, Any], Readings]
"""Takes the `pynvml` module and a device handle."""

MEGA = 1_000_000
MILLI = 1000
PERCENT = 100


def temperature(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_temperature_celsius", nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)


def temperature_margin(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_temperature_margin_celsius", nvml.nvmlDeviceGetMarginTemperature(gpu)


def power(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_power_watts", nvml.nvmlDeviceGetPowerUsage(gpu) / MILLI


def utilization(nvml: Any, gpu: Any) -> Readings:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    yield "gpu_utilization_ratio", rates.gpu / PERCENT
    yield "gpu_memory_utilization_ratio", rates.memory / PERCENT


def memory(nvml: Any, gpu: Any) -> Readings:
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
        yield "gpu_memory_reserved_bytes", info.reserved
    except nvml.NVMLError_FunctionNotFound:  # drivers before 510 count the reserve as used
        info = nvml.nvmlDeviceGetMemoryInfo(gpu)
    yield "gpu_memory_used_bytes", info.used
    yield "gpu_memory_total_bytes", info.total


def clocks(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_clock_hertz/sm", nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * MEGA
    yield "gpu_clock_hertz/memory", nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * MEGA


def slow_clocks(nvml: Any, gpu: Any) -> Readings:
    for name, kind in (("graphics", nvml.NVML_CLOCK_GRAPHICS), ("video", nvml.NVML_CLOCK_VIDEO)):
        yield f"gpu_clock_hertz/{name}", nvml.nvmlDeviceGetClockInfo(gpu, kind) * MEGA


def power_limit(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_power_limit_watts", nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / MILLI


def performance_state(nvml: Any, gpu: Any) -> Readings:
    state = nvml.nvmlDeviceGetPerformanceState(gpu)
    if state != nvml.NVML_PSTATE_UNKNOWN:
        yield "gpu_performance_state", state


def encoder(nvml: Any, gpu: Any) -> Readings:
    percent = nvml.nvmlDeviceGetEncoderUtilization(gpu)[0]
    yield "gpu_encoder_utilization_ratio", percent / PERCENT


def decoder(nvml: Any, gpu: Any) -> Readings:
    percent = nvml.nvmlDeviceGetDecoderUtilization(gpu)[0]
    yield "gpu_decoder_utilization_ratio", percent / PERCENT


def bar1(nvml: Any, gpu: Any) -> Readings:
    info = nvml.nvmlDeviceGetBAR1MemoryInfo(gpu)
    yield "gpu_bar1_used_bytes", info.bar1Used
    yield "gpu_bar1_total_bytes", info.bar1Total


def pcie_link(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_pcie_link_generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)
    yield "gpu_pcie_link_width", nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)


def temperature_limits(nvml: Any, gpu: Any) -> Readings:
    slowdown = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    yield (
        "gpu_temperature_slowdown_celsius",
        nvml.nvmlDeviceGetTemperatureThreshold(gpu, slowdown),
    )
    shutdown = nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    yield (
        "gpu_temperature_shutdown_celsius",
        nvml.nvmlDeviceGetTemperatureThreshold(gpu, shutdown),
    )


def memory_temperature_limit(nvml: Any, gpu: Any) -> Readings:
    limit = nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX
    yield (
        "gpu_memory_temperature_limit_celsius",
        nvml.nvmlDeviceGetTemperatureThreshold(gpu, limit),
    )


def power_range(nvml: Any, gpu: Any) -> Readings:
    low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)
    yield "gpu_power_limit_min_watts", low / MILLI
    yield "gpu_power_limit_max_watts", high / MILLI


def clock_limits(nvml: Any, gpu: Any) -> Readings:
    kinds = (("sm", nvml.NVML_CLOCK_SM), ("memory", nvml.NVML_CLOCK_MEM))
    for name, kind in kinds:
        yield f"gpu_clock_max_hertz/{name}", nvml.nvmlDeviceGetMaxClockInfo(gpu, kind) * MEGA


def pcie_limits(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_pcie_link_generation_max", nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)
    yield "gpu_pcie_link_width_max", nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)


def modes(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_persistence_mode", nvml.nvmlDeviceGetPersistenceMode(gpu)
    yield "gpu_compute_mode", nvml.nvmlDeviceGetComputeMode(gpu)


def processes(nvml: Any, gpu: Any) -> Readings:
    found = {}
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
        found[process.pid] = process.usedGpuMemory
    yield "gpu_processes", len(found)
    for pid, used in list(found.items())[:MAX_PROCESSES]:
        if used is not None:
            yield f"gpu_process_memory_bytes/{pid}", used


MAX_PROCESSES = 64
"""Most processes of one GPU with a series of their own; `gpu_processes` counts them all."""

TIERS: dict[str, tuple[Reader, ...]] = {
    "fast": (temperature, temperature_margin, power, utilization, memory, clocks),
    "medium": (
        power_limit,
        performance_state,
        slow_clocks,
        encoder,
        decoder,
        bar1,
        pcie_link,
        processes,
        health.throttling,
        health.ecc_volatile,
    ),
    "slow": (
        temperature_limits,
        memory_temperature_limit,
        power_range,
        clock_limits,
        pcie_limits,
        modes,
        health.ecc_aggregate,
        health.ecc_mode,
        health.sram_threshold,
        health.spare_rows,
        health.nvlinks,
        health.fabric,
    ),
}

MIG_TIERS: dict[str, tuple[Reader, ...]] = {"fast": (memory,), "medium": (processes,), "slow": ()}
"""The same for a MIG instance, which has no sensors of its own."""
