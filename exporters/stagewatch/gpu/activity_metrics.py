"""What the parts of a GPU are busy with, from NVML's performance monitoring (Hopper and later).

Shares are averages over the time since the collection before; each has the `_ratio` of now, and
the important ones a counter, whose `rate()` is exact at any scrape interval.
"""

from __future__ import annotations

from stagewatch.core.exposition import Metric
from stagewatch.gpu.labels import GPU

GRAPHICS_ACTIVE = Metric(
    "gpu_graphics_active_ratio", "gauge", "Share of time any compute or graphics ran.", GPU
)
SM_ACTIVE = Metric(
    "gpu_sm_active_ratio",
    "gauge",
    "Share of time an SM had at least one warp, averaged over the SMs.",
    GPU,
)
SM_ACTIVE_SECONDS = Metric(
    "gpu_sm_active_seconds_total",
    "counter",
    "gpu_sm_active_ratio added up over time, since the reader process started.",
    GPU,
)
SM_OCCUPANCY = Metric(
    "gpu_sm_occupancy_ratio", "gauge", "Warps resident on the SMs over the most they can hold.", GPU
)
TENSOR_ACTIVE = Metric(
    "gpu_tensor_active_ratio",
    "gauge",
    "Share of time the SMs' tensor cores worked, at any precision.",
    GPU,
)
TENSOR_ACTIVE_SECONDS = Metric(
    "gpu_tensor_active_seconds_total",
    "counter",
    "gpu_tensor_active_ratio added up over time, since the reader process started.",
    GPU,
)
DRAM_ACTIVE = Metric(
    "gpu_dram_active_ratio",
    "gauge",
    "Device memory bandwidth in use over its theoretical maximum.",
    GPU,
)
DRAM_ACTIVE_SECONDS = Metric(
    "gpu_dram_active_seconds_total",
    "counter",
    "gpu_dram_active_ratio added up over time, since the reader process started.",
    GPU,
)
INTEGER_ACTIVE = Metric(
    "gpu_integer_active_ratio", "gauge", "Share of time the SMs did integer operations.", GPU
)
FP64_ACTIVE = Metric(
    "gpu_fp64_active_ratio", "gauge", "Share of time the SMs did FP64 outside tensor cores.", GPU
)
FP32_ACTIVE = Metric(
    "gpu_fp32_active_ratio", "gauge", "Share of time the SMs did FP32 outside tensor cores.", GPU
)
FP16_ACTIVE = Metric(
    "gpu_fp16_active_ratio", "gauge", "Share of time the SMs did FP16 outside tensor cores.", GPU
)
PCIE_THROUGHPUT = Metric(
    "gpu_pcie_throughput_bytes_per_second",
    "gauge",
    "PCIe traffic; tx is from the GPU.",
    (*GPU, "direction"),
)
NVLINK_THROUGHPUT = Metric(
    "gpu_nvlink_throughput_bytes_per_second",
    "gauge",
    "NVLink traffic over all links; tx is from the GPU.",
    (*GPU, "direction"),
)
SM_CYCLES = Metric(
    "gpu_sm_cycles_total",
    "counter",
    "SM cycles since the last reboot (newest drivers only).",
    GPU,
)
SM_ACTIVE_CYCLES = Metric(
    "gpu_sm_active_cycles_total",
    "counter",
    "SM cycles with at least one warp since the last reboot (newest drivers only).",
    GPU,
)
TENSOR_ACTIVE_CYCLES = Metric(
    "gpu_tensor_active_cycles_total",
    "counter",
    "SM cycles with working tensor cores since the last reboot (newest drivers only).",
    GPU,
)
INTEGER_ACTIVE_CYCLES = Metric(
    "gpu_integer_active_cycles_total",
    "counter",
    "SM cycles with integer operations since the last reboot (newest drivers only).",
    GPU,
)
FP64_ACTIVE_CYCLES = Metric(
    "gpu_fp64_active_cycles_total",
    "counter",
    "SM cycles with FP64 since the last reboot (newest drivers only).",
    GPU,
)
FP32_ACTIVE_CYCLES = Metric(
    "gpu_fp32_active_cycles_total",
    "counter",
    "SM cycles with FP32 since the last reboot (newest drivers only).",
    GPU,
)
FP16_ACTIVE_CYCLES = Metric(
    "gpu_fp16_active_cycles_total",
    "counter",
    "SM cycles with FP16 since the last reboot (newest drivers only).",
    GPU,
)
