"""What is or goes wrong with a GPU: throttling, memory errors and repairs, links, fabric."""

from __future__ import annotations

from stagewatch.core.exposition import Metric
from stagewatch.gpu.labels import GPU

THROTTLE = Metric(
    "gpu_throttle_seconds_total",
    "counter",
    "Time the GPU was slowed down, by reason; reasons may hold at the same time.",
    (*GPU, "reason"),
)
THROTTLE_ACTIVE = Metric(
    "gpu_throttle_active", "gauge", "1 if the GPU is being slowed down now.", (*GPU, "reason")
)
ECC_ERRORS = Metric(
    "gpu_ecc_errors_total",
    "counter",
    "ECC errors in dram or sram, corrected or uncorrected; volatile counts since the driver was "
    "loaded, aggregate over the GPU's life.",
    (*GPU, "memory", "kind", "scope"),
)
ECC_MODE = Metric("gpu_ecc_mode", "gauge", "1 if ECC is on.", GPU)
SRAM_THRESHOLD = Metric(
    "gpu_sram_ecc_threshold_exceeded",
    "gauge",
    "1 if uncorrectable SRAM errors have passed the vendor's limit for replacing the GPU.",
    GPU,
)
REMAPPED_ROWS = Metric(
    "gpu_remapped_rows", "gauge", "Rows replaced by spares, by kind of error.", (*GPU, "kind")
)
REMAP_PENDING = Metric(
    "gpu_remap_pending", "gauge", "1 if a row is to be replaced at the next reset.", GPU
)
REMAP_FAILED = Metric("gpu_remap_failed", "gauge", "1 if replacing a row has failed.", GPU)
REMAP_BANKS = Metric(
    "gpu_remap_banks",
    "gauge",
    "Memory banks by how many spare rows they have left.",
    (*GPU, "spares"),
)
RETIRED_PAGES = Metric(
    "gpu_retired_pages", "gauge", "Pages taken out of use, before Ampere.", (*GPU, "cause")
)
RETIRED_PAGES_PENDING = Metric(
    "gpu_retired_pages_pending", "gauge", "1 if a page is to be retired at the next reset.", GPU
)
RECOVERY_ACTION = Metric(
    "gpu_recovery_action",
    "gauge",
    "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset, "
    "5 recover the IMEX domain, 6 reset the bus, 7 reboot the system.",
    GPU,
)
NVLINK_UP = Metric("gpu_nvlink_up", "gauge", "1 if the NVLink is active.", (*GPU, "link"))
NVLINK_BYTES = Metric(
    "gpu_nvlink_bytes_total",
    "counter",
    "NVLink data over all links; tx is from the GPU.",
    (*GPU, "direction"),
)
NVLINK_ERRORS = Metric(
    "gpu_nvlink_errors_total", "counter", "NVLink errors over all links.", (*GPU, "kind")
)
PCIE_BYTES = Metric(
    "gpu_pcie_bytes_total", "counter", "PCIe data; tx is from the GPU.", (*GPU, "direction")
)
PCIE_REPLAYS = Metric("gpu_pcie_replays_total", "counter", "PCIe packets sent again.", GPU)
PCIE_ERRORS = Metric("gpu_pcie_errors_total", "counter", "PCIe errors.", (*GPU, "kind"))
PCIE_GENERATION = Metric(
    "gpu_pcie_link_generation",
    "gauge",
    "PCIe generation in use; an idle GPU may step down.",
    GPU,
)
PCIE_GENERATION_MAX = Metric(
    "gpu_pcie_link_generation_max", "gauge", "Highest PCIe generation of this GPU and slot.", GPU
)
PCIE_WIDTH = Metric("gpu_pcie_link_width", "gauge", "PCIe lanes in use.", GPU)
PCIE_WIDTH_MAX = Metric(
    "gpu_pcie_link_width_max", "gauge", "Most PCIe lanes of this GPU and slot.", GPU
)
FABRIC_STATE = Metric(
    "gpu_fabric_state",
    "gauge",
    "Registration with the NVSwitch fabric: 1 not started, 2 in progress, 3 completed.",
    GPU,
)
FABRIC_FAILED = Metric(
    "gpu_fabric_failed", "gauge", "1 if registration with the fabric ended in an error.", GPU
)
FABRIC_UNHEALTHY = Metric(
    "gpu_fabric_unhealthy", "gauge", "1 if the fabric reports the condition.", (*GPU, "condition")
)
