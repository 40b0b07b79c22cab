"""Every reading under its own name and unit: what a scrape shows of values that are all different.

Fields and profiling metrics are named here as in nvml.h, through the constants of `pynvml`, to hold
the numbers in the code against them.
"""

from __future__ import annotations

import time

import pynvml
import pytest

from stagewatch.gpu.nvml.fields import fields_by_tier
from stagewatch.gpu.nvml.gpm import METRICS, SHORTEST
from tests.fake_clock import Clock
from tests.fakes.nvml import FakeNvml
from tests.gpu.gpu_scene import MakeGpu, Series, metrics, of

DRIVER = "590.48.01"
"""Recent enough for the ids that `pynvml` has."""

MARGIN_LIMIT = "gpu_temperature_margin_limit_celsius"
THROTTLE = "gpu_throttle_seconds_total"
NVLINK_ERRORS = "gpu_nvlink_errors_total"
PCIE_ERRORS = "gpu_pcie_errors_total"
PCIE_RATE = "gpu_pcie_throughput_bytes_per_second"
NVLINK_RATE = "gpu_nvlink_throughput_bytes_per_second"

# nvml.h's name less NVML_FI_DEV_, our metric, its further labels, base units in a raw one.
FIELDS: tuple[tuple[str, str, dict[str, str], float], ...] = (
    ("MEMORY_TEMP", "gpu_memory_temperature_celsius", {}, 1),
    ("TOTAL_ENERGY_CONSUMPTION", "gpu_energy_joules_total", {}, 1e-3),
    ("PERF_POLICY_POWER", THROTTLE, {"reason": "sw_power_cap"}, 1e-9),
    ("PERF_POLICY_THERMAL", THROTTLE, {"reason": "sw_thermal"}, 1e-9),
    ("PERF_POLICY_SYNC_BOOST", THROTTLE, {"reason": "sync_boost"}, 1e-9),
    ("PERF_POLICY_BOARD_LIMIT", THROTTLE, {"reason": "board_limit"}, 1e-9),
    ("PERF_POLICY_LOW_UTILIZATION", THROTTLE, {"reason": "low_utilization"}, 1e-9),
    ("PERF_POLICY_RELIABILITY", THROTTLE, {"reason": "reliability"}, 1e-9),
    ("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", THROTTLE, {"reason": "hw_thermal"}, 1e-9),
    ("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", THROTTLE, {"reason": "hw_power_brake"}, 1e-9),
    ("REMAPPED_COR", "gpu_remapped_rows", {"kind": "corrected"}, 1),
    ("REMAPPED_UNC", "gpu_remapped_rows", {"kind": "uncorrected"}, 1),
    ("REMAPPED_PENDING", "gpu_remap_pending", {}, 1),
    ("REMAPPED_FAILURE", "gpu_remap_failed", {}, 1),
    ("GET_GPU_RECOVERY_ACTION", "gpu_recovery_action", {}, 1),
    ("NVLINK_THROUGHPUT_DATA_TX", "gpu_nvlink_bytes_total", {"direction": "tx"}, 1024),
    ("NVLINK_THROUGHPUT_DATA_RX", "gpu_nvlink_bytes_total", {"direction": "rx"}, 1024),
    ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", NVLINK_ERRORS, {"kind": "crc_flit"}, 1),
    ("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", NVLINK_ERRORS, {"kind": "crc_data"}, 1),
    ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", NVLINK_ERRORS, {"kind": "replay"}, 1),
    ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", NVLINK_ERRORS, {"kind": "recovery"}, 1),
    ("NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", NVLINK_ERRORS, {"kind": "ecc_data"}, 1),
    ("NVLINK_COUNT_MALFORMED_PACKET_ERRORS", NVLINK_ERRORS, {"kind": "malformed_packet"}, 1),
    ("NVLINK_COUNT_BUFFER_OVERRUN_ERRORS", NVLINK_ERRORS, {"kind": "buffer_overrun"}, 1),
    ("NVLINK_COUNT_RCV_ERRORS", NVLINK_ERRORS, {"kind": "receive"}, 1),
    ("NVLINK_COUNT_RCV_REMOTE_ERRORS", NVLINK_ERRORS, {"kind": "receive_remote"}, 1),
    ("NVLINK_COUNT_RCV_GENERAL_ERRORS", NVLINK_ERRORS, {"kind": "receive_general"}, 1),
    ("NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS", NVLINK_ERRORS, {"kind": "link_integrity"}, 1),
    ("NVLINK_COUNT_XMIT_DISCARDS", NVLINK_ERRORS, {"kind": "transmit_discard"}, 1),
    ("NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", NVLINK_ERRORS, {"kind": "recovery_failed"}, 1),
    ("NVLINK_COUNT_EFFECTIVE_ERRORS", NVLINK_ERRORS, {"kind": "effective"}, 1),
    ("NVLINK_COUNT_SYMBOL_ERRORS", NVLINK_ERRORS, {"kind": "symbol"}, 1),
    ("PCIE_COUNT_TX_BYTES", "gpu_pcie_bytes_total", {"direction": "tx"}, 1),
    ("PCIE_COUNT_RX_BYTES", "gpu_pcie_bytes_total", {"direction": "rx"}, 1),
    ("PCIE_REPLAY_COUNTER", "gpu_pcie_replays_total", {}, 1),
    ("PCIE_L0_TO_RECOVERY_COUNTER", PCIE_ERRORS, {"kind": "l0_to_recovery"}, 1),
    ("PCIE_COUNT_CORRECTABLE_ERRORS", PCIE_ERRORS, {"kind": "correctable"}, 1),
    ("PCIE_COUNT_NAKS_RECEIVED", PCIE_ERRORS, {"kind": "nak_received"}, 1),
    ("PCIE_COUNT_RECEIVER_ERROR", PCIE_ERRORS, {"kind": "receiver"}, 1),
    ("PCIE_COUNT_BAD_TLP", PCIE_ERRORS, {"kind": "bad_tlp"}, 1),
    ("PCIE_COUNT_NAKS_SENT", PCIE_ERRORS, {"kind": "nak_sent"}, 1),
    ("PCIE_COUNT_BAD_DLLP", PCIE_ERRORS, {"kind": "bad_dllp"}, 1),
    ("PCIE_COUNT_NON_FATAL_ERROR", PCIE_ERRORS, {"kind": "non_fatal"}, 1),
    ("PCIE_COUNT_FATAL_ERROR", PCIE_ERRORS, {"kind": "fatal"}, 1),
    ("PCIE_COUNT_UNSUPPORTED_REQ", PCIE_ERRORS, {"kind": "unsupported_request"}, 1),
    ("PCIE_COUNT_LCRC_ERROR", PCIE_ERRORS, {"kind": "lcrc"}, 1),
    ("PCIE_COUNT_LANE_ERROR", PCIE_ERRORS, {"kind": "lane"}, 1),
    ("RETIRED_SBE", "gpu_retired_pages", {"cause": "single_bit"}, 1),
    ("RETIRED_DBE", "gpu_retired_pages", {"cause": "double_bit"}, 1),
    ("RETIRED_PENDING", "gpu_retired_pages_pending", {}, 1),
    ("TEMPERATURE_SHUTDOWN_TLIMIT", MARGIN_LIMIT, {"limit": "shutdown"}, 1),
    ("TEMPERATURE_SLOWDOWN_TLIMIT", MARGIN_LIMIT, {"limit": "slowdown"}, 1),
    ("TEMPERATURE_MEM_MAX_TLIMIT", MARGIN_LIMIT, {"limit": "memory"}, 1),
    ("TEMPERATURE_GPU_MAX_TLIMIT", MARGIN_LIMIT, {"limit": "operating"}, 1),
)
# The same from others, where a driver does not have those.
INSTEAD: tuple[tuple[str, str, dict[str, str], float], ...] = (
    ("CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", THROTTLE, {"reason": "sw_thermal"}, 1e-9),
    ("NVLINK_COUNT_XMIT_BYTES", "gpu_nvlink_bytes_total", {"direction": "tx"}, 1),
    ("NVLINK_COUNT_RCV_BYTES", "gpu_nvlink_bytes_total", {"direction": "rx"}, 1),
    ("NVLINK_COUNT_LINK_RECOVERY_EVENTS", NVLINK_ERRORS, {"kind": "recovery"}, 1),
)

# nvml.h's name less NVML_GPM_METRIC_; raw shares are percentages, raw throughputs MiB a second.
PROFILING: tuple[tuple[str, str, dict[str, str], float], ...] = (
    ("SM_UTIL", "gpu_sm_active_ratio", {}, 0.01),
    ("SM_OCCUPANCY", "gpu_sm_occupancy_ratio", {}, 0.01),
    ("ANY_TENSOR_UTIL", "gpu_tensor_active_ratio", {}, 0.01),
    ("DRAM_BW_UTIL", "gpu_dram_active_ratio", {}, 0.01),
    ("PCIE_TX_PER_SEC", PCIE_RATE, {"direction": "tx"}, 2**20),
    ("PCIE_RX_PER_SEC", PCIE_RATE, {"direction": "rx"}, 2**20),
    ("NVLINK_TOTAL_TX_PER_SEC", NVLINK_RATE, {"direction": "tx"}, 2**20),
    ("NVLINK_TOTAL_RX_PER_SEC", NVLINK_RATE, {"direction": "rx"}, 2**20),
)

# The fake driver's key, what it answers, our metric, its further labels and its value.
CALLS: tuple[tuple[str, int, str, dict[str, str], float], ...] = (
    ("temperature", 41, "gpu_temperature_celsius", {}, 41),
    ("temperature_margin", 42, "gpu_temperature_margin_celsius", {}, 42),
    ("temperature_threshold.0", 43, "gpu_temperature_shutdown_celsius", {}, 43),
    ("temperature_threshold.1", 44, "gpu_temperature_slowdown_celsius", {}, 44),
    ("temperature_threshold.2", 45, "gpu_memory_temperature_limit_celsius", {}, 45),
    ("power", 301_500, "gpu_power_watts", {}, 301.5),
    ("power_limit", 302_000, "gpu_power_limit_watts", {}, 302),
    ("power_limit_max", 304_000, "gpu_power_limit_max_watts", {}, 304),
    ("clock.graphics", 1001, "gpu_clock_hertz", {"domain": "graphics"}, 1.001e9),
    ("clock.sm", 1002, "gpu_clock_hertz", {"domain": "sm"}, 1.002e9),
    ("clock.memory", 1003, "gpu_clock_hertz", {"domain": "memory"}, 1.003e9),
    ("clock.video", 1004, "gpu_clock_hertz", {"domain": "video"}, 1.004e9),
    ("utilization", 51, "gpu_utilization_ratio", {}, 0.51),
    ("memory_used", 2**31, "gpu_memory_used_bytes", {}, 2**31),
    ("memory_total", 2**33, "gpu_memory_total_bytes", {}, 2**33),
    ("pcie_generation", 3, "gpu_pcie_link_generation", {}, 3),
    ("pcie_generation_max", 4, "gpu_pcie_link_generation_max", {}, 4),
    ("pcie_width", 8, "gpu_pcie_link_width", {}, 8),
    ("pcie_width_max", 12, "gpu_pcie_link_width_max", {}, 12),
    ("performance_state", 5, "gpu_performance_state", {}, 5),
    ("persistence_mode", 0, "gpu_persistence_mode", {}, 0),
    ("ecc_mode", 0, "gpu_ecc_mode", {}, 0),
    ("sram_threshold", 1, "gpu_sram_ecc_threshold_exceeded", {}, 1),
    ("fabric.state", 2, "gpu_fabric_state", {}, 2),
    ("nvlink.7", 0, "gpu_nvlink_up", {"link": "7"}, 0),
    *(
        (f"banks.{spares}", 60 + place, "gpu_remap_banks", {"spares": spares}, 60 + place)
        for place, spares in enumerate(("max", "high", "partial", "low", "none"))
    ),
    *(
        (
            f"ecc.{memory}.{kind}.{scope}", 70 + place, "gpu_ecc_errors_total",
            {"memory": memory, "kind": kind, "scope": scope}, 70 + place,
        )
        for place, (memory, kind, scope) in enumerate(
            (memory, kind, scope)
            for memory in ("dram", "sram")
            for kind in ("corrected", "uncorrected")
            for scope in ("volatile", "aggregate")
        )
    ),
)  # fmt: skip


def wrong(
    shown: Series, expected: list[tuple[str, dict[str, str], float]]
) -> list[tuple[str, dict[str, str], list[float], float]]:
    """What of GPU 3 is not shown as expected."""
    return [
        (name, labels, found, value)
        for name, labels, value in expected
        if (found := of(shown, name, gpu="3", **labels)) != [pytest.approx(value)]
    ]


def test_every_call_has_its_own_metric_and_unit(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.replace({f"gpu.3.{key}": str(raw) for key, raw, *_ in CALLS})
    shown = metrics(make_gpu())
    assert not wrong(shown, [(name, labels, value) for *_, name, labels, value in CALLS])


def field_id(name: str) -> int:
    return int(getattr(pynvml, f"NVML_FI_DEV_{name}"))


def test_every_field_has_its_own_metric_and_unit(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    rows = (*FIELDS, *INSTEAD)
    asked = {field.id for tier in fields_by_tier(DRIVER).values() for field in tier}
    assert {field_id(row[0]) for row in rows} == asked
    raw = {row[0]: 100 + place for place, row in enumerate(rows)}
    nvml.replace({f"gpu.3.field.{field_id(row[0])}": str(raw[row[0]]) for row in rows})
    nvml.set("driver", DRIVER)
    clock = Clock()
    collector = make_gpu(clock)
    shown = metrics(collector)
    assert not wrong(
        shown, [(name, at, raw[nvml_name] * unit) for nvml_name, name, at, unit in FIELDS]
    )
    replaced = {(name, tuple(labels.items())) for _, name, labels, _ in INSTEAD}
    for nvml_name, name, labels, _ in FIELDS:
        if (name, tuple(labels.items())) in replaced:
            nvml.set(f"gpu.3.field.{field_id(nvml_name)}.return", 3)
    clock.now += 60
    shown = metrics(collector)
    assert not wrong(
        shown, [(name, at, raw[nvml_name] * unit) for nvml_name, name, at, unit in INSTEAD]
    )


def test_every_profiling_metric_has_its_own_metric_and_unit(
    nvml: FakeNvml, make_gpu: MakeGpu
) -> None:
    ids = {name: int(getattr(pynvml, f"NVML_GPM_METRIC_{name}")) for name, *_ in PROFILING}
    assert set(ids.values()) == set(METRICS)
    raw = {name: 10 + place for place, name in enumerate(ids)}
    nvml.replace({f"gpu.3.gpm.{id}": str(raw[name]) for name, id in ids.items()})
    for id in ids.values():
        nvml.set(f"gpu.3.gpm.{id}.return", 0)
    collector = make_gpu()
    metrics(collector)
    time.sleep(SHORTEST)
    shown = metrics(collector)
    expected = [
        (name, labels, raw[nvml_name] * unit) for nvml_name, name, labels, unit in PROFILING
    ]
    assert not wrong(shown, expected)


def test_every_reason_for_throttling_has_its_own_series(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    reasons = {
        "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "hw_power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    }
    for gpu, bit in enumerate(reasons.values()):
        nvml.set(f"gpu.{gpu}.throttle", bit)
    shown = metrics(make_gpu())
    for gpu, reason in enumerate(reasons):
        active = {
            other: of(shown, "gpu_throttle_active", gpu=str(gpu), reason=other) for other in reasons
        }
        assert active == {other: [int(other == reason)] for other in reasons}


def test_every_condition_of_the_fabric_has_its_own_series(
    nvml: FakeNvml, make_gpu: MakeGpu
) -> None:
    shifts = {
        "degraded_bandwidth": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW,
        "route_recovery": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY,
        "route_unhealthy": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY,
        "access_timeout_recovery": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
    }
    configuration = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION
    fine = sum(2 << shift for shift in shifts.values()) + (1 << configuration)
    for gpu, shift in enumerate(shifts.values()):
        nvml.set(f"gpu.{gpu}.fabric.health", fine - (1 << shift))  # 1 is true, 2 is false
    nvml.set("gpu.4.fabric.health", fine + (4 << configuration))
    conditions = [*shifts, "incorrect_configuration"]
    shown = metrics(make_gpu())
    for gpu, condition in enumerate(conditions):
        unhealthy = {
            other: of(shown, "gpu_fabric_unhealthy", gpu=str(gpu), condition=other)
            for other in conditions
        }
        assert unhealthy == {other: [int(other == condition)] for other in conditions}


def test_every_tier_has_its_cost(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.set("delay.nvmlDeviceGetPowerUsage", 1000)
    nvml.set("delay.nvmlDeviceGetPerformanceState", 2000)
    nvml.set("delay.nvmlDeviceGetEccMode", 3000)
    shown = metrics(make_gpu())
    for tier, least in (("fast", 0.008), ("medium", 0.016), ("slow", 0.024)):
        (seconds,) = of(shown, "stagewatch_gpu_tier_duration_seconds", tier=tier)
        assert seconds >= least
