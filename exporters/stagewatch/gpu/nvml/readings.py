"""What is asked of one GPU, call by call, in three tiers by cost and by how fast it changes.

A reader is a generator over `(metric name, value in base units)`; it is also the unit of "not
supported": when the driver refuses it, it is left out until the next look at what there is.  So it
makes one call: what a device has must not go missing beside what it lacks.
Most of what is asked once in a while is in `fields`, since that needs one call for all of it.
"""

from __future__ import annotations

from typing import Any

from stagewatch.gpu.nvml import health
from stagewatch.gpu.nvml.health import Reader, Readings

MEGA = 1_000_000
MILLI = 1000
PERCENT = 100
ALL_BITS = -1
"""What a GPU that is going off the bus answers to everything, as a signed number."""


def temperature(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_temperature_celsius", nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)


def temperature_margin(nvml: Any, gpu: Any) -> Readings:
    margin = nvml.nvmlDeviceGetMarginTemperature(gpu)
    if margin != ALL_BITS:
        yield "gpu_temperature_margin_celsius", margin


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


def clock(domain: str, kind: str) -> Reader:
    def read(nvml: Any, gpu: Any) -> Readings:
        megahertz = nvml.nvmlDeviceGetClockInfo(gpu, getattr(nvml, kind))
        yield f"gpu_clock_hertz/{domain}", megahertz * MEGA

    return read


def clock_max(domain: str, kind: str) -> Reader:
    def read(nvml: Any, gpu: Any) -> Readings:
        megahertz = nvml.nvmlDeviceGetMaxClockInfo(gpu, getattr(nvml, kind))
        yield f"gpu_clock_max_hertz/{domain}", megahertz * MEGA

    return read


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


def pcie_generation(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_pcie_link_generation", nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)


def pcie_width(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_pcie_link_width", nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)


def pcie_generation_max(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_pcie_link_generation_max", nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)


def pcie_width_max(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_pcie_link_width_max", nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)


def temperature_limit(name: str, threshold: str) -> Reader:
    def read(nvml: Any, gpu: Any) -> Readings:
        yield name, nvml.nvmlDeviceGetTemperatureThreshold(gpu, getattr(nvml, threshold))

    return read


def power_range(nvml: Any, gpu: Any) -> Readings:
    low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)
    yield "gpu_power_limit_min_watts", low / MILLI
    yield "gpu_power_limit_max_watts", high / MILLI


def persistence_mode(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_persistence_mode", nvml.nvmlDeviceGetPersistenceMode(gpu)


def compute_mode(nvml: Any, gpu: Any) -> Readings:
    yield "gpu_compute_mode", nvml.nvmlDeviceGetComputeMode(gpu)


def processes(nvml: Any, gpu: Any) -> Readings:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)
    except nvml.NVMLError_FunctionNotFound:  # drivers before 510
        running = nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu)
    found = {process.pid: process.usedGpuMemory for process in running}
    yield "gpu_processes", len(found)
    for pid, used in list(found.items())[:MAX_PROCESSES]:
        if used is not None:
            yield f"gpu_process_memory_bytes/{pid}", used


MAX_PROCESSES = 64
"""Most processes of one GPU with a series of their own; `gpu_processes` counts them all."""

TIERS: dict[str, tuple[Reader, ...]] = {
    "fast": (
        temperature,
        temperature_margin,
        power,
        utilization,
        memory,
        clock("sm", "NVML_CLOCK_SM"),
        clock("memory", "NVML_CLOCK_MEM"),
    ),
    "medium": (
        power_limit,
        performance_state,
        clock("graphics", "NVML_CLOCK_GRAPHICS"),
        clock("video", "NVML_CLOCK_VIDEO"),
        encoder,
        decoder,
        bar1,
        pcie_generation,
        pcie_width,
        processes,
        health.throttling,
        *health.ECC_VOLATILE,
    ),
    "slow": (
        temperature_limit(
            "gpu_temperature_slowdown_celsius", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"
        ),
        temperature_limit(
            "gpu_temperature_shutdown_celsius", "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"
        ),
        temperature_limit(
            "gpu_memory_temperature_limit_celsius", "NVML_TEMPERATURE_THRESHOLD_MEM_MAX"
        ),
        power_range,
        clock_max("graphics", "NVML_CLOCK_GRAPHICS"),
        clock_max("sm", "NVML_CLOCK_SM"),
        clock_max("memory", "NVML_CLOCK_MEM"),
        clock_max("video", "NVML_CLOCK_VIDEO"),
        pcie_generation_max,
        pcie_width_max,
        persistence_mode,
        compute_mode,
        *health.ECC_AGGREGATE,
        health.ecc_mode,
        health.sram_threshold,
        health.spare_rows,
        health.nvlinks,
        health.fabric,
    ),
}

MIG_TIERS: dict[str, tuple[Reader, ...]] = {"fast": (memory,), "medium": (processes,), "slow": ()}
"""The same for a MIG instance, which has no sensors of its own."""
