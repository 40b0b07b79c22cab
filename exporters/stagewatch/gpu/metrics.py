"""The declarations of everything the `gpu` collector may export.

Names and units follow one pattern so that readings need no table: the reader process already
speaks in these names (see `stagewatch.gpu.nvml`).
"""

from __future__ import annotations

from stagewatch.core.exposition import Metric
from stagewatch.gpu import activity_metrics as gpu_activity_metrics
from stagewatch.gpu import health_metrics as gpu_health_metrics
from stagewatch.gpu.labels import GPU

INFO = Metric(
    "gpu_info",
    "gauge",
    "Identity of a GPU or MIG instance: 1.  type is the normalised short name; source is nvml for "
    "a real device and recorded for readings replayed from a file.",
    (*GPU, "model", "type", "minor", "pci_bus_id", "driver", "vbios", "serial", "source"),
)
UP = Metric("gpu_up", "gauge", "1 if the driver reaches the GPU, 0 if it has lost it.", GPU)
RELEASED = Metric(
    "stagewatch_gpu_reader_released",
    "gauge",
    "1 while the agent keeps off the GPUs on request (SIGUSR1 or the release file).",
)
TIER_DURATION = Metric(
    "stagewatch_gpu_tier_duration_seconds",
    "gauge",
    "Time the driver took to answer a tier's questions for all GPUs.",
    ("tier",),
)

TEMPERATURE = Metric("gpu_temperature_celsius", "gauge", "Temperature of the GPU die.", GPU)
MEMORY_TEMPERATURE = Metric(
    "gpu_memory_temperature_celsius", "gauge", "Temperature of the device memory.", GPU
)
TEMPERATURE_SLOWDOWN = Metric(
    "gpu_temperature_slowdown_celsius", "gauge", "Temperature at which the GPU slows down.", GPU
)
TEMPERATURE_MARGIN = Metric(
    "gpu_temperature_margin_celsius",
    "gauge",
    "Degrees left until the GPU slows down; newer devices give this instead of the limit.",
    GPU,
)
TEMPERATURE_MARGIN_LIMIT = Metric(
    "gpu_temperature_margin_limit_celsius",
    "gauge",
    "gpu_temperature_margin_celsius at which the GPU shuts down, slows down in hardware, slows "
    "down because of its memory, or may fall below its base clock (operating).",
    (*GPU, "limit"),
)
TEMPERATURE_SHUTDOWN = Metric(
    "gpu_temperature_shutdown_celsius", "gauge", "Temperature at which the GPU shuts down.", GPU
)
MEMORY_TEMPERATURE_LIMIT = Metric(
    "gpu_memory_temperature_limit_celsius", "gauge", "Highest temperature of the memory.", GPU
)
POWER = Metric(
    "gpu_power_watts", "gauge", "Power draw, averaged over a second on Ampere and later.", GPU
)
POWER_AVERAGE = Metric(
    "gpu_power_average_watts", "gauge", "Power draw averaged by the driver over a second.", GPU
)
POWER_INSTANT = Metric(
    "gpu_power_instant_watts", "gauge", "Power draw at the moment it was asked for.", GPU
)
POWER_LIMIT = Metric("gpu_power_limit_watts", "gauge", "Power limit in force.", GPU)
POWER_LIMIT_MIN = Metric("gpu_power_limit_min_watts", "gauge", "Lowest limit one may set.", GPU)
POWER_LIMIT_MAX = Metric("gpu_power_limit_max_watts", "gauge", "Highest limit one may set.", GPU)
ENERGY = Metric("gpu_energy_joules_total", "counter", "Energy since the driver was loaded.", GPU)
CLOCK = Metric("gpu_clock_hertz", "gauge", "Current clock.", (*GPU, "domain"))
CLOCK_MAX = Metric("gpu_clock_max_hertz", "gauge", "Highest clock of the domain.", (*GPU, "domain"))
UTILIZATION = Metric(
    "gpu_utilization_ratio",
    "gauge",
    "Share of the last sample period in which any kernel ran; says nothing about how much of the "
    "GPU it used.",
    GPU,
)
MEMORY_UTILIZATION = Metric(
    "gpu_memory_utilization_ratio",
    "gauge",
    "Share of the last sample period in which device memory was read or written.",
    GPU,
)
ENCODER = Metric("gpu_encoder_utilization_ratio", "gauge", "Use of the video encoder.", GPU)
DECODER = Metric("gpu_decoder_utilization_ratio", "gauge", "Use of the video decoder.", GPU)
MEMORY_USED = Metric(
    "gpu_memory_used_bytes", "gauge", "Device memory in use, without the driver's reserve.", GPU
)
MEMORY_RESERVED = Metric(
    "gpu_memory_reserved_bytes", "gauge", "Device memory the driver keeps to itself.", GPU
)
MEMORY_TOTAL = Metric("gpu_memory_total_bytes", "gauge", "Device memory.", GPU)
BAR1_USED = Metric("gpu_bar1_used_bytes", "gauge", "BAR1 address space in use.", GPU)
BAR1_TOTAL = Metric("gpu_bar1_total_bytes", "gauge", "BAR1 address space.", GPU)
PERFORMANCE_STATE = Metric(
    "gpu_performance_state", "gauge", "Performance state, 0 (fastest) to 15.", GPU
)
PERSISTENCE_MODE = Metric("gpu_persistence_mode", "gauge", "1 if persistence mode is on.", GPU)
COMPUTE_MODE = Metric(
    "gpu_compute_mode",
    "gauge",
    "0 shared, 2 compute prohibited, 3 one process at a time (the driver's own codes).",
    GPU,
)
PROCESSES = Metric("gpu_processes", "gauge", "Processes with a compute context.", GPU)
PROCESS_MEMORY = Metric(
    "gpu_process_memory_bytes", "gauge", "Device memory of a process.", (*GPU, "pid")
)
CALL_ERRORS = Metric(
    "gpu_driver_call_errors_total",
    "counter",
    "Calls the driver failed, other than by saying that it does not support them.",
    GPU,
)
UNSUPPORTED = Metric(
    "gpu_driver_unsupported",
    "gauge",
    "Readings that the driver says it does not have for this GPU.",
    GPU,
)

READINGS = {
    metric.name: metric
    for declared in (globals(), vars(gpu_activity_metrics), vars(gpu_health_metrics))
    for metric in tuple(declared.values())
    if isinstance(metric, Metric) and metric.labels[:3] == GPU and metric not in (INFO, UP)
}
"""By name, everything a frame's `values` may hold."""
