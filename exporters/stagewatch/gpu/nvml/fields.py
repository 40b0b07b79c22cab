"""Field values: readings that NVML gives in one batch, each with a return code of its own.

Ids are written as numbers, with NVML's name beside them, because the constants of `pynvml` follow
the newest driver while ids have moved between drivers (see `throttling_of`).
Names and units: nvml.h, "Field Identifiers".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stagewatch.gpu.nvml.answers import blank, member
from stagewatch.gpu.readings import Key, Reading

ALL_LINKS = 0xFFFFFFFF
"""The scope of an NVLink field that sums over all links."""

_NANO = 1e9
_MILLI = 1e3
_KIB = 1 / 1024


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field id, and the reading it becomes."""

    id: int
    key: Key
    per_unit: float
    """How much of the raw value is one base unit."""
    scope: int


def _field(id: int, reading: Reading, *labels: str, per_unit: float = 1.0, scope: int = 0) -> Field:
    return Field(id, reading.key(*labels), per_unit, scope)


_MEMORY_TEMPERATURE = _field(82, Reading.MEMORY_TEMPERATURE)  # MEMORY_TEMP
_ENERGY = _field(83, Reading.ENERGY, per_unit=_MILLI)  # TOTAL_ENERGY_CONSUMPTION

_THROTTLING = (
    _field(74, Reading.THROTTLE, "sw_power_cap", per_unit=_NANO),  # PERF_POLICY_POWER
    _field(75, Reading.THROTTLE, "sw_thermal", per_unit=_NANO),  # PERF_POLICY_THERMAL
    _field(76, Reading.THROTTLE, "sync_boost", per_unit=_NANO),  # PERF_POLICY_SYNC_BOOST
    _field(77, Reading.THROTTLE, "board_limit", per_unit=_NANO),  # PERF_POLICY_BOARD_LIMIT
    _field(78, Reading.THROTTLE, "low_utilization", per_unit=_NANO),  # ..._LOW_UTILIZATION
    _field(79, Reading.THROTTLE, "reliability", per_unit=_NANO),  # PERF_POLICY_RELIABILITY
)

_MEMORY_REPAIR = (
    _field(142, Reading.REMAPPED_ROWS, "corrected"),  # REMAPPED_COR
    _field(143, Reading.REMAPPED_ROWS, "uncorrected"),  # REMAPPED_UNC
    _field(144, Reading.REMAP_PENDING),  # REMAPPED_PENDING
    _field(145, Reading.REMAP_FAILED),  # REMAPPED_FAILURE
    _field(230, Reading.RECOVERY_ACTION),  # GET_GPU_RECOVERY_ACTION
)

# Of two fields for one reading, the first that the driver has counts: NVLink up to 4 has the
# THROUGHPUT fields, which despite their name are totals; NVLink 5 has the COUNT fields.  The same
# holds for throttling by heat (`throttling_of`).
_NVLINK = (
    _field(
        138, Reading.NVLINK_BYTES, "tx", per_unit=_KIB, scope=ALL_LINKS
    ),  # NVLINK_THROUGHPUT_DATA_TX
    _field(
        139, Reading.NVLINK_BYTES, "rx", per_unit=_KIB, scope=ALL_LINKS
    ),  # NVLINK_THROUGHPUT_DATA_RX
    _field(202, Reading.NVLINK_BYTES, "tx", scope=ALL_LINKS),  # NVLINK_COUNT_XMIT_BYTES
    _field(204, Reading.NVLINK_BYTES, "rx", scope=ALL_LINKS),  # NVLINK_COUNT_RCV_BYTES
    _field(38, Reading.NVLINK_ERRORS, "crc_flit"),  # NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    _field(45, Reading.NVLINK_ERRORS, "crc_data"),  # NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    _field(52, Reading.NVLINK_ERRORS, "replay"),  # NVLINK_REPLAY_ERROR_COUNT_TOTAL
    _field(59, Reading.NVLINK_ERRORS, "recovery"),  # NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    _field(160, Reading.NVLINK_ERRORS, "ecc_data"),  # NVLINK_ECC_DATA_ERROR_COUNT_TOTAL
    _field(206, Reading.NVLINK_ERRORS, "malformed_packet", scope=ALL_LINKS),
    _field(207, Reading.NVLINK_ERRORS, "buffer_overrun", scope=ALL_LINKS),
    _field(208, Reading.NVLINK_ERRORS, "receive", scope=ALL_LINKS),
    _field(209, Reading.NVLINK_ERRORS, "receive_remote", scope=ALL_LINKS),
    _field(210, Reading.NVLINK_ERRORS, "receive_general", scope=ALL_LINKS),
    _field(211, Reading.NVLINK_ERRORS, "link_integrity", scope=ALL_LINKS),
    _field(212, Reading.NVLINK_ERRORS, "transmit_discard", scope=ALL_LINKS),
    _field(214, Reading.NVLINK_ERRORS, "recovery_failed", scope=ALL_LINKS),
    _field(215, Reading.NVLINK_ERRORS, "recovery", scope=ALL_LINKS),
    _field(219, Reading.NVLINK_ERRORS, "effective", scope=ALL_LINKS),
    _field(221, Reading.NVLINK_ERRORS, "symbol", scope=ALL_LINKS),
)

_PCIE = (
    _field(197, Reading.PCIE_BYTES, "tx"),  # PCIE_COUNT_TX_BYTES
    _field(198, Reading.PCIE_BYTES, "rx"),  # PCIE_COUNT_RX_BYTES
    _field(94, Reading.PCIE_REPLAYS),  # PCIE_REPLAY_COUNTER
)

_SLOW = (
    _field(29, Reading.RETIRED_PAGES, "single_bit"),  # RETIRED_SBE
    _field(30, Reading.RETIRED_PAGES, "double_bit"),  # RETIRED_DBE
    _field(31, Reading.RETIRED_PAGES_PENDING),  # RETIRED_PENDING
    _field(193, Reading.TEMPERATURE_MARGIN_LIMIT, "shutdown"),  # TEMPERATURE_SHUTDOWN_TLIMIT
    _field(194, Reading.TEMPERATURE_MARGIN_LIMIT, "slowdown"),  # TEMPERATURE_SLOWDOWN_TLIMIT
    _field(195, Reading.TEMPERATURE_MARGIN_LIMIT, "memory"),  # TEMPERATURE_MEM_MAX_TLIMIT
    _field(196, Reading.TEMPERATURE_MARGIN_LIMIT, "operating"),  # TEMPERATURE_GPU_MAX_TLIMIT
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
        _field(first + place, Reading.THROTTLE, name, per_unit=_NANO)
        for place, name in enumerate(names)
    )


def fields_by_tier(driver: str) -> dict[str, tuple[Field, ...]]:
    """The fields to ask a driver of this version for, by tier."""
    throttling = _THROTTLING + throttling_of(driver)
    return {
        "fast": (),  # a call for two of them takes pynvml as long as four of the other calls
        "medium": (_MEMORY_TEMPERATURE, _ENERGY, *throttling, *_MEMORY_REPAIR, *_NVLINK, *_PCIE),
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


Answer = tuple[Field, int, "float | None"]
"""A field, its return code and, unless that is a sentinel, its value in base units."""


def ask(nvml: Any, gpu: Any, fields: Sequence[Field]) -> list[Answer]:
    """The answers of one call for all of these fields."""
    answers: list[Answer] = []
    entries = nvml.nvmlDeviceGetFieldValues(gpu, [(field.id, field.scope) for field in fields])
    for field, entry in zip(fields, entries, strict=True):
        value = None
        code, kind = member(entry, "nvmlReturn"), member(entry, "valueType")
        if code == 0 and kind < len(_MEMBERS):
            name, bits = _MEMBERS[kind]
            raw = getattr(member(entry, "value"), name)
            value = None if blank(raw, bits) else raw / field.per_unit
        answers.append((field, code, value))
    return answers
