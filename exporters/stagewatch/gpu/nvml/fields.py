"""Field values: what can be asked of a GPU in one batch, each with a return code of its own.

Ids are written as numbers, with NVML's name beside them, because the constants of `pynvml` follow
the newest driver while ids have moved between drivers (see `throttling_of`).
Names and units: nvml.h, "Field Identifiers".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stagewatch.gpu.nvml.sanity import blank

ALL_LINKS = 0xFFFFFFFF
"""As the scope of an NVLink field: the sum over all links."""

_NANO = 1e9
_MILLI = 1e3
_KIB = 1 / 1024


@dataclass(frozen=True, slots=True)
class Field:
    """One field id, and the metric it becomes."""

    id: int
    name: str
    per_unit: float = 1.0
    """How much of the raw value is one base unit."""
    scope: int = 0


FAST = (
    Field(82, "gpu_memory_temperature_celsius"),  # MEMORY_TEMP
    Field(83, "gpu_energy_joules_total", _MILLI),  # TOTAL_ENERGY_CONSUMPTION
    Field(185, "gpu_power_average_watts", _MILLI),  # POWER_AVERAGE
    Field(186, "gpu_power_instant_watts", _MILLI),  # POWER_INSTANT
)

_THROTTLING = (
    Field(74, "gpu_throttle_seconds_total/sw_power_cap", _NANO),  # PERF_POLICY_POWER
    Field(75, "gpu_throttle_seconds_total/sw_thermal", _NANO),  # PERF_POLICY_THERMAL
    Field(76, "gpu_throttle_seconds_total/sync_boost", _NANO),  # PERF_POLICY_SYNC_BOOST
    Field(77, "gpu_throttle_seconds_total/board_limit", _NANO),  # PERF_POLICY_BOARD_LIMIT
    Field(78, "gpu_throttle_seconds_total/low_utilization", _NANO),  # ..._LOW_UTILIZATION
    Field(79, "gpu_throttle_seconds_total/reliability", _NANO),  # PERF_POLICY_RELIABILITY
)

_MEMORY_REPAIR = (
    Field(142, "gpu_remapped_rows/corrected"),  # REMAPPED_COR
    Field(143, "gpu_remapped_rows/uncorrected"),  # REMAPPED_UNC
    Field(144, "gpu_remap_pending"),  # REMAPPED_PENDING
    Field(145, "gpu_remap_failed"),  # REMAPPED_FAILURE
    Field(230, "gpu_recovery_action"),  # GET_GPU_RECOVERY_ACTION
)

# Where a name occurs twice, the first that the driver has counts: NVLink up to 4 has the
# THROUGHPUT fields, which despite their name are totals; NVLink 5 has the COUNT fields.  So it is
# with throttling by heat (`throttling_of`).
_NVLINK = (
    Field(138, "gpu_nvlink_bytes_total/tx", _KIB, ALL_LINKS),  # NVLINK_THROUGHPUT_DATA_TX
    Field(139, "gpu_nvlink_bytes_total/rx", _KIB, ALL_LINKS),  # NVLINK_THROUGHPUT_DATA_RX
    Field(202, "gpu_nvlink_bytes_total/tx", 1.0, ALL_LINKS),  # NVLINK_COUNT_XMIT_BYTES
    Field(204, "gpu_nvlink_bytes_total/rx", 1.0, ALL_LINKS),  # NVLINK_COUNT_RCV_BYTES
    Field(38, "gpu_nvlink_errors_total/crc_flit"),  # NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    Field(45, "gpu_nvlink_errors_total/crc_data"),  # NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    Field(52, "gpu_nvlink_errors_total/replay"),  # NVLINK_REPLAY_ERROR_COUNT_TOTAL
    Field(59, "gpu_nvlink_errors_total/recovery"),  # NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    Field(160, "gpu_nvlink_errors_total/ecc_data"),  # NVLINK_ECC_DATA_ERROR_COUNT_TOTAL
    Field(206, "gpu_nvlink_errors_total/malformed_packet", scope=ALL_LINKS),
    Field(207, "gpu_nvlink_errors_total/buffer_overrun", scope=ALL_LINKS),
    Field(208, "gpu_nvlink_errors_total/receive", scope=ALL_LINKS),
    Field(209, "gpu_nvlink_errors_total/receive_remote", scope=ALL_LINKS),
    Field(210, "gpu_nvlink_errors_total/receive_general", scope=ALL_LINKS),
    Field(211, "gpu_nvlink_errors_total/link_integrity", scope=ALL_LINKS),
    Field(212, "gpu_nvlink_errors_total/transmit_discard", scope=ALL_LINKS),
    Field(214, "gpu_nvlink_errors_total/recovery_failed", scope=ALL_LINKS),
    Field(215, "gpu_nvlink_errors_total/recovery", scope=ALL_LINKS),
    Field(219, "gpu_nvlink_errors_total/effective", scope=ALL_LINKS),
    Field(221, "gpu_nvlink_errors_total/symbol", scope=ALL_LINKS),
)

_PCIE = (
    Field(197, "gpu_pcie_bytes_total/tx"),  # PCIE_COUNT_TX_BYTES
    Field(198, "gpu_pcie_bytes_total/rx"),  # PCIE_COUNT_RX_BYTES
    Field(94, "gpu_pcie_replays_total"),  # PCIE_REPLAY_COUNTER
    Field(169, "gpu_pcie_errors_total/l0_to_recovery"),  # PCIE_L0_TO_RECOVERY_COUNTER
    Field(173, "gpu_pcie_errors_total/correctable"),  # PCIE_COUNT_CORRECTABLE_ERRORS
    Field(174, "gpu_pcie_errors_total/nak_received"),  # PCIE_COUNT_NAKS_RECEIVED
    Field(175, "gpu_pcie_errors_total/receiver"),  # PCIE_COUNT_RECEIVER_ERROR
    Field(176, "gpu_pcie_errors_total/bad_tlp"),  # PCIE_COUNT_BAD_TLP
    Field(177, "gpu_pcie_errors_total/nak_sent"),  # PCIE_COUNT_NAKS_SENT
    Field(178, "gpu_pcie_errors_total/bad_dllp"),  # PCIE_COUNT_BAD_DLLP
    Field(179, "gpu_pcie_errors_total/non_fatal"),  # PCIE_COUNT_NON_FATAL_ERROR
    Field(180, "gpu_pcie_errors_total/fatal"),  # PCIE_COUNT_FATAL_ERROR
    Field(181, "gpu_pcie_errors_total/unsupported_request"),  # PCIE_COUNT_UNSUPPORTED_REQ
    Field(182, "gpu_pcie_errors_total/lcrc"),  # PCIE_COUNT_LCRC_ERROR
    Field(183, "gpu_pcie_errors_total/lane"),  # PCIE_COUNT_LANE_ERROR
)

_SLOW = (
    Field(29, "gpu_retired_pages/single_bit"),  # RETIRED_SBE
    Field(30, "gpu_retired_pages/double_bit"),  # RETIRED_DBE
    Field(31, "gpu_retired_pages_pending"),  # RETIRED_PENDING
    Field(193, "gpu_temperature_margin_limit_celsius/shutdown"),  # TEMPERATURE_SHUTDOWN_TLIMIT
    Field(194, "gpu_temperature_margin_limit_celsius/slowdown"),  # TEMPERATURE_SLOWDOWN_TLIMIT
    Field(195, "gpu_temperature_margin_limit_celsius/memory"),  # TEMPERATURE_MEM_MAX_TLIMIT
    Field(196, "gpu_temperature_margin_limit_celsius/operating"),  # TEMPERATURE_GPU_MAX_TLIMIT
)


def throttling_of(driver: str) -> tuple[Field, ...]:
    """The fields of throttling whose ids depend on the driver's version.

    nvml.h gave CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, ..._HW_THERM_SLOWDOWN and
    ..._HW_POWER_BRAKE_SLOWDOWN the ids 251 to 253 from 575 on and moved them to 269 to 271 within
    580; before and after, 251 to 253 are settings of power smoothing.
    """
    try:
        major, minor = (int(part) for part in driver.split(".")[:2])
    except ValueError:
        return ()
    if (major, minor) >= (580, 82):
        first = 269
    elif (575, 0) <= (major, minor) <= (580, 65):
        first = 251
    else:
        return ()
    names = ("sw_thermal", "hw_thermal", "hw_power_brake")
    return tuple(
        Field(first + place, f"gpu_throttle_seconds_total/{name}", _NANO)
        for place, name in enumerate(names)
    )


def fields_by_tier(driver: str) -> dict[str, tuple[Field, ...]]:
    """What to ask for in each tier of a driver of this version."""
    throttling = _THROTTLING + throttling_of(driver)
    return {
        "fast": FAST,
        "medium": throttling + _MEMORY_REPAIR + _NVLINK + _PCIE,
        "slow": _SLOW,
    }


# By nvmlValueType_t: the member of the union, and its width in bits (None for a float).
_MEMBERS = (
    ("dVal", None),
    ("uiVal", 32),
    ("ulVal", 64),
    ("ullVal", 64),
    ("sllVal", 64),
    ("siVal", 32),
    ("usVal", 16),
)


def ask(nvml: Any, gpu: Any, fields: Sequence[Field]) -> list[tuple[Field, int, float | None]]:
    """Each field with its return code and, unless it is a sentinel, its value in base units."""
    found = []
    entries = nvml.nvmlDeviceGetFieldValues(gpu, [(field.id, field.scope) for field in fields])
    for field, entry in zip(fields, entries, strict=True):
        value = None
        if entry.nvmlReturn == 0 and entry.valueType < len(_MEMBERS):
            member, bits = _MEMBERS[entry.valueType]
            raw = getattr(entry.value, member)
            value = None if blank(raw, bits) else raw / field.per_unit
        found.append((field, int(entry.nvmlReturn), value))
    return found
