"""What dcgm-exporter serves of a node, by its releases, for rules evaluated by promtool.

Names, units and labels are from the exporter's own documents: its templates and lists of counters
(internal/pkg/rendermetrics/render_metrics.go and etc/default-counters.csv of the tags 3.1.3-3.1.2
to 4.5.3-4.8.2), its release notes for 4.6.0-4.8.3 and 4.9.0
(https://docs.nvidia.com/datacenter/dcgm/latest/release-notes/dcgm-exporter.html) and DCGM's list of
fields (https://docs.nvidia.com/datacenter/dcgm/latest/reference/field-identifiers.html).
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.alerts.promtool import series

SINCE_4_9 = {  # the old name: the new one, and what the old unit is multiplied by
    "DEV_SM_CLOCK": ("DEV_SM_CLOCK_HERTZ", 1e6),
    "DEV_MEM_CLOCK": ("DEV_MEMORY_CLOCK_HERTZ", 1e6),
    "DEV_TOTAL_ENERGY_CONSUMPTION": ("DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3),
    "DEV_GPU_UTIL": ("DEV_GPU_UTIL_RATIO", 0.01),
    "DEV_MEM_COPY_UTIL": ("DEV_MEMORY_UTIL_RATIO", 0.01),
    "DEV_ENC_UTIL": ("DEV_ENC_UTIL_RATIO", 0.01),
    "DEV_DEC_UTIL": ("DEV_DEC_UTIL_RATIO", 0.01),
    "DEV_FB_FREE": ("DEV_FB_FREE_BYTES", 2**20),
    "DEV_FB_USED": ("DEV_FB_USED_BYTES", 2**20),
    "DEV_FB_RESERVED": ("DEV_FB_RESERVED_BYTES", 2**20),
    "DEV_FB_TOTAL": ("DEV_FB_CAPACITY_BYTES", 2**20),
    "DEV_GPU_TEMP": ("DEV_GPU_TEMP_CELSIUS", 1),
    "DEV_MEMORY_TEMP": ("DEV_MEMORY_TEMP_CELSIUS", 1),
    "DEV_SLOWDOWN_TEMP": ("DEV_GPU_TEMP_SLOWDOWN_CELSIUS", 1),
    "DEV_POWER_USAGE": ("DEV_BOARD_POWER_WATTS", 1),
    "DEV_ENFORCED_POWER_LIMIT": ("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", 1),
    "DEV_PCIE_REPLAY_COUNTER": ("DEV_PCIE_REPLAY_TOTAL", 1),
    "DEV_XID_ERRORS": ("DEV_XID_ERROR", 1),
    "DEV_CORRECTABLE_REMAPPED_ROWS": ("DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1),
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": ("DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1),
    "DEV_ROW_REMAP_FAILURE": ("DEV_ROW_REMAP_FAILED", 1),
    "DEV_THRESHOLD_SRM": ("DEV_SRAM_EXCEEDED", 1),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("DEV_NVLINK_RECOVERY_ERROR_TOTAL", 1),
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", 1),
    "PROF_GR_ENGINE_ACTIVE": ("PROF_GR_ENGINE_UTIL_RATIO", 1),
    "PROF_SM_ACTIVE": ("PROF_SM_UTIL_RATIO", 1),
    "PROF_PIPE_TENSOR_ACTIVE": ("PROF_TENSOR_UTIL_RATIO", 1),
    "PROF_DRAM_ACTIVE": ("PROF_DRAM_UTIL_RATIO", 1),
}


@dataclass(frozen=True, slots=True)
class Release:
    """Releases of dcgm-exporter that name things alike."""

    name: str
    host: str
    driver: str
    renamed: bool

    def field(self, old: str, values: str) -> tuple[str, str]:
        """Name and values (in promtool's notation) of a field that was called `old`."""
        if not self.renamed or old not in SINCE_4_9:
            return f"DCGM_FI_{old}", values
        new, factor = SINCE_4_9[old]
        parts = []
        for part in values.split():
            value, repeat, times = part.partition("x")
            start, step, rise = value.partition("+")
            scaled = repr(float(start) * factor) + (step and step + repr(float(rise) * factor))
            parts.append(scaled + repeat + times)
        return f"DCGM_FI_{new}", " ".join(parts)


RELEASES = (
    Release("up to 4.8.2", "Hostname", "DCGM_FI_DRIVER_VERSION", renamed=False),
    Release("4.8.3", "hostname", "DCGM_FI_DRIVER_VERSION", renamed=False),
    Release("4.9.0", "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION", renamed=True),
)


def gpu(
    release: Release,
    number: int,
    fields: dict[str, str],
    *,
    model: str = "NVIDIA H100 80GB HBM3",
    node: str = "n1",
    instances: tuple[str, ...] = ("",),
    **more: str,
) -> dict[str, str]:
    """The series of a GPU, once for each of its MIG instances, by their text."""
    served = {}
    for instance in instances:
        labels = {
            "gpu": number,
            "UUID": f"GPU-{number}" if node == "n1" else f"GPU-{node}-{number}",
            "pci_bus_id": f"00000000:{number + 16:02X}:00.0",
            "device": f"nvidia{number}",
            "modelName": model,
            **({"GPU_I_PROFILE": "3g.40gb", "GPU_I_ID": instance} if instance else {}),
            release.host: node,
            release.driver: "570.86.15",
            "cluster": "c",
            "job": "dcgm",
            "instance": f"{node}:9400",
            **more,
        }
        for old, values in fields.items():
            name, scaled = release.field(old, values)
            if old.endswith("XID_ERRORS"):
                labels = labels | {"err_code": "0", "err_msg": "No Error"}
            served[series(name, **labels)] = scaled
    return served
