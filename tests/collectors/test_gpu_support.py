"""Old drivers, partial support and sentinels: absent, never zero, never a made-up number."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.sources.nvml.fields import fields_by_tier
from stagewatch.sources.nvml.gpm import METRICS as GPM_METRICS
from stagewatch.sources.nvml.gpm import SHORTEST
from stagewatch.sources.nvml.sanity import blank, plausible
from tests.collectors.gpu_scene import Clock, MakeGpu, metrics, of
from tests.fakes.nvml import FakeNvml, build

CALLS = {
    "nvmlDeviceGetTemperature": "gpu_temperature_celsius",
    "nvmlDeviceGetMarginTemperature": "gpu_temperature_margin_celsius",
    "nvmlDeviceGetPowerUsage": "gpu_power_watts",
    "nvmlDeviceGetUtilizationRates": "gpu_utilization_ratio",
    "nvmlDeviceGetMemoryInfo_v2": "gpu_memory_used_bytes",
    "nvmlDeviceGetClockInfo": "gpu_clock_hertz",
    "nvmlDeviceGetFieldValues": "gpu_energy_joules_total",
    "nvmlDeviceGetEnforcedPowerLimit": "gpu_power_limit_watts",
    "nvmlDeviceGetPerformanceState": "gpu_performance_state",
    "nvmlDeviceGetEncoderUtilization": "gpu_encoder_utilization_ratio",
    "nvmlDeviceGetDecoderUtilization": "gpu_decoder_utilization_ratio",
    "nvmlDeviceGetBAR1MemoryInfo": "gpu_bar1_used_bytes",
    "nvmlDeviceGetCurrPcieLinkGeneration": "gpu_pcie_link_generation",
    "nvmlDeviceGetComputeRunningProcesses_v3": "gpu_processes",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "gpu_throttle_active",
    "nvmlDeviceGetTemperatureThreshold": "gpu_temperature_slowdown_celsius",
    "nvmlDeviceGetPowerManagementLimitConstraints": "gpu_power_limit_max_watts",
    "nvmlDeviceGetMaxClockInfo": "gpu_clock_max_hertz",
    "nvmlDeviceGetMaxPcieLinkGeneration": "gpu_pcie_link_generation_max",
    "nvmlDeviceGetPersistenceMode": "gpu_persistence_mode",
    "nvmlDeviceGetMemoryErrorCounter": "gpu_ecc_errors_total",
    "nvmlDeviceGetEccMode": "gpu_ecc_mode",
    "nvmlDeviceGetSramEccErrorStatus": "gpu_sram_ecc_threshold_exceeded",
    "nvmlDeviceGetRowRemapperHistogram": "gpu_remap_banks",
    "nvmlDeviceGetNvLinkState": "gpu_nvlink_up",
    "nvmlDeviceGetGpuFabricInfoV": "gpu_fabric_state",
}
"""Every optional call, with a metric that comes from it."""

IDENTITY = {
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetVbiosVersion": "vbios",
    "nvmlDeviceGetSerial": "serial",
}


@pytest.mark.parametrize("call", CALLS)
def test_what_one_gpu_does_not_support_is_absent_and_counted(
    nvml: FakeNvml, make_gpu: MakeGpu, call: str
) -> None:
    nvml.set(f"gpu.5.return.{call}", 3)
    clock = Clock()
    collector = make_gpu(clock)
    metrics(collector)
    clock.now += 1
    shown = metrics(collector)
    assert of(shown, CALLS[call], gpu="5") == []
    assert of(shown, CALLS[call], gpu="4") != []
    unsupported = of(shown, "gpu_driver_unsupported")
    assert unsupported[5] > unsupported[4]
    assert of(shown, "gpu_driver_call_errors_total", gpu="5") == [0]


@pytest.mark.parametrize("call", IDENTITY)
def test_gpu_without_a_serial_is_still_identified(
    nvml: FakeNvml, make_gpu: MakeGpu, call: str
) -> None:
    nvml.set(f"return.{call}", 3)
    shown = metrics(make_gpu())
    assert of(shown, "gpu_info", type="h200") == [1] * 8
    infos = [dict(key) for (name, key) in shown if name == "gpu_info"]
    assert not [info for info in infos if IDENTITY[call] in info]


def test_what_was_not_supported_for_a_while_is_found_again(
    nvml: FakeNvml, make_gpu: MakeGpu
) -> None:
    clock = Clock()
    nvml.set("return.nvmlDeviceGetUtilizationRates", 3)
    nvml.set("field.82.return", 3)
    collector = make_gpu(clock)
    assert of(metrics(collector), "gpu_utilization_ratio") == []
    nvml.clear()
    clock.now += 1
    assert of(metrics(collector), "gpu_memory_temperature_celsius") == []  # not asked each second
    clock.now += 60
    shown = metrics(collector)
    assert of(shown, "gpu_utilization_ratio") == [0.97] * 8
    assert of(shown, "gpu_memory_temperature_celsius") == [61] * 8


def test_driver_that_lacks_newer_functions_gives_all_it_has(
    nvml: FakeNvml, make_gpu: MakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build(tmp_path / "old", "FAKE_OLD")))
    nvml.set("driver", "470.256.02")
    collector = make_gpu()
    shown = metrics(collector)
    shown |= metrics(collector)
    assert of(shown, "gpu_memory_used_bytes", gpu="0") == [90600 * 2**20]  # reserve included
    assert of(shown, "gpu_memory_reserved_bytes") == []
    assert of(shown, "gpu_sm_active_ratio") == []
    assert of(shown, "gpu_fabric_state") == []
    assert of(shown, "gpu_temperature_celsius") == list(range(50, 58))
    assert of(shown, "gpu_driver_call_errors_total") == [0] * 8


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("550.90.07", None),
        ("570.86.15", None),  # 252 and 253 are settings of power smoothing here
        ("575.51.03", (252, 253)),
        ("580.65.06", (252, 253)),
        ("580.82.07", (270, 271)),
        ("595.45", (270, 271)),
        ("unknown", None),
    ],
)
def test_hardware_throttling_is_asked_for_by_the_ids_of_that_driver(
    driver: str, expected: tuple[int, int] | None
) -> None:
    fields = {field.name: field.id for field in fields_by_tier(driver)["medium"]}
    names = ("hw_thermal", "hw_power_brake")
    found = tuple(fields.get(f"gpu_throttle_seconds_total/{name}") for name in names)
    assert found == (expected or (None, None))


RAW_BLANKS = ("4294967295", "2147483632", "2147483647")
WIDE_BLANKS = ("18446744073709551615", "9223372036854775792", "9223372036854775807")
READINGS = (
    "temperature", "power", "power_limit", "performance_state", "persistence_mode", "utilization",
    "memory_utilization", "encoder", "decoder", "clock.sm", "clock_max.sm", "pcie_generation",
    "pcie_width", "pcie_generation_max", "pcie_width_max", "temperature_threshold.1",
    "power_limit_max", "compute_mode", "fabric.state", "nvlink.3", "sram_threshold", "ecc_mode",
)  # fmt: skip
WIDE_READINGS = ("memory_total", "memory_used", "bar1_total", "ecc.dram.corrected.volatile")
FIELD_IDS = sorted({field.id for tier in fields_by_tier("590.1").values() for field in tier})


@st.composite
def sentinels(draw: st.DrawFn) -> dict[str, str]:
    """Control lines that make some of what GPU 2 answers a sentinel of its type."""
    lines = {
        f"gpu.2.{name}": draw(st.sampled_from(RAW_BLANKS))
        for name in draw(st.lists(st.sampled_from(READINGS), max_size=8))
    }
    lines |= {
        f"gpu.2.{name}": draw(st.sampled_from(WIDE_BLANKS))
        for name in draw(st.lists(st.sampled_from(WIDE_READINGS), max_size=4))
    }
    for id in draw(st.lists(st.sampled_from(FIELD_IDS), max_size=12)):
        kind = draw(st.sampled_from((0, 1, 3, 4, 5)))
        blanks = {
            0: ("nan", "inf", "-inf", "140737488355328", "140737488355330"),
            1: RAW_BLANKS,
            3: WIDE_BLANKS,
            4: ("-1", *WIDE_BLANKS[1:]),
            5: ("-1", *RAW_BLANKS[1:]),
        }[kind]
        lines |= {
            f"gpu.2.field.{id}.type": str(kind),
            f"gpu.2.field.{id}": draw(st.sampled_from(blanks)),
        }
    for id in draw(st.lists(st.sampled_from(sorted(GPM_METRICS)), max_size=6)):
        lines[f"gpu.2.gpm.{id}"] = draw(st.sampled_from(("nan", "inf", "-1", "140737488355328")))
    return lines


def test_no_sentinel_ever_reaches_a_scrape(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    metrics(collector)

    @settings(max_examples=100, deadline=None)
    @given(sentinels())
    def check(lines: dict[str, str]) -> None:
        nvml.replace(lines)
        if any(".gpm." in line for line in lines):
            time.sleep(SHORTEST)
        clock.now += 60  # every tier is due
        for (name, labels), value in metrics(collector).items():
            if name.startswith("gpu_"):
                assert_is_a_reading(name, dict(labels), value)

    check()


def assert_is_a_reading(name: str, labels: dict[str, str], value: float) -> None:
    where = (name, labels)
    assert math.isfinite(value), where
    assert 0 <= value < 1e18, where
    assert int(value) not in range(0x7FFFFFF0, 0x80000000), where
    assert int(value) != 2**32 - 1, where
    assert value <= 1.05 or not name.endswith("_ratio"), where


@given(st.floats(), st.sampled_from(("gpu_power_watts", "gpu_x_ratio", "gpu_x_total", "gpu_x")))
def test_a_reading_is_finite_and_within_reason(value: float, name: str) -> None:
    if plausible(name, value):
        assert math.isfinite(value)
        assert abs(value) < 1e19


@given(st.integers(0, 2**32 - 1))
def test_ordinary_numbers_are_no_sentinels(value: int) -> None:
    special = value == 2**32 - 1 or 0x7FFFFFF0 <= value <= 0x7FFFFFFF
    assert blank(value, 32) == special
    assert not blank(value, 64)
