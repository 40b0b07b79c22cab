"""Old drivers and partial support: absent and counted, never zero, and nothing else goes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.gpu.nvml.fields import fields_by_tier
from tests.fake_clock import Clock
from tests.fakes.nvml import FakeNvml, build
from tests.gpu.gpu_scene import MakeGpu, metrics, of

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
    "nvmlDeviceGetCurrPcieLinkGeneration": "gpu_pcie_link_generation",
    "nvmlDeviceGetCurrPcieLinkWidth": "gpu_pcie_link_width",
    "nvmlDeviceGetComputeRunningProcesses_v3": "gpu_processes",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "gpu_throttle_active",
    "nvmlDeviceGetTemperatureThreshold": "gpu_temperature_slowdown_celsius",
    "nvmlDeviceGetMaxPcieLinkGeneration": "gpu_pcie_link_generation_max",
    "nvmlDeviceGetMaxPcieLinkWidth": "gpu_pcie_link_width_max",
    "nvmlDeviceGetPersistenceMode": "gpu_persistence_mode",
    "nvmlDeviceGetMemoryErrorCounter": "gpu_ecc_errors_total",
    "nvmlDeviceGetSramEccErrorStatus": "gpu_sram_ecc_threshold_exceeded",
    "nvmlDeviceGetRowRemapperHistogram": "gpu_remap_banks",
    "nvmlDeviceGetNvLinkState": "gpu_nvlink_up",
    "nvmlDeviceGetGpuFabricInfoV": "gpu_fabric_state",
}
"""Every optional call for readings, with a metric that comes from it."""

IDENTITY = {
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetVbiosVersion": "vbios",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetPciInfo_v3": "pci_bus_id",
}
PROFILING = (
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
)
EVENTS = (
    "nvmlEventSetCreate",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
)
INSTANCES = (
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
)


@pytest.mark.parametrize(
    ("argument", "metric", "labels"),
    [
        ("ecc.sram.uncorrected.aggregate", "gpu_ecc_errors_total",
         {"memory": "sram", "kind": "uncorrected", "scope": "aggregate"}),
        ("clock.video", "gpu_clock_hertz", {"domain": "video"}),
        ("temperature_threshold.1", "gpu_temperature_slowdown_celsius", {}),
    ],
)  # fmt: skip
def test_what_is_refused_for_one_argument_takes_nothing_along(
    nvml: FakeNvml, make_gpu: MakeGpu, argument: str, metric: str, labels: dict[str, str]
) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    everything = metrics(collector).keys()
    nvml.set(f"{argument}.return", 3)
    clock.now += 60
    metrics(collector)
    clock.now += 10  # the medium tier, and what was refused is not asked again
    shown = metrics(collector).keys()
    gone = {
        (name, frozenset(dict(key).items() - {"gpu", "uuid"})) for name, key in everything - shown
    }
    assert {name for name, _ in gone} == {metric}
    assert len(everything - shown) == 8
    assert all(labels.items() <= dict(key).items() for _, key in everything - shown)


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


@pytest.mark.parametrize("half", [0, 1])
def test_functions_that_a_driver_lacks_take_nothing_else_along(
    nvml: FakeNvml, make_gpu: MakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, half: int
) -> None:
    optional = sorted({*CALLS, *IDENTITY, *PROFILING, *EVENTS, *INSTANCES})
    lacking = optional[half::2]
    library = build(tmp_path / "partial", *(f"{call}=not_{call}" for call in lacking))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    clock = Clock()
    collector = make_gpu(clock)
    for seconds in (0, 60, 10):
        clock.now += seconds
        shown = metrics(collector)
    assert of(shown, "gpu_up") == [1] * 8
    assert of(shown, "gpu_driver_call_errors_total") == [0] * 8
    there = {name for name, _ in shown}
    for call in set(CALLS) & set(optional):
        assert (CALLS[call] in there) == (call not in lacking), call
    info = next(dict(key) for name, key in shown if name == "gpu_info")
    for call, label in IDENTITY.items():
        assert (label in info) == (call not in lacking), call


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("570.86.15", None),  # 251 to 253 are settings of power smoothing here
        ("575.51.03", (251, 252, 253)),
        ("580.82.07", (269, 270, 271)),
        ("unknown", None),
    ],
)
def test_throttling_is_asked_for_by_the_ids_of_that_driver(
    driver: str, expected: tuple[int, int, int] | None
) -> None:
    known = fields_by_tier("unknown")["medium"]
    names = [
        f"gpu_throttle_seconds_total/{n}" for n in ("sw_thermal", "hw_thermal", "hw_power_brake")
    ]
    more = [field for field in fields_by_tier(driver)["medium"] if field not in known]
    found = dict(zip((field.key for field in more), (field.id for field in more), strict=True))
    assert found == (dict(zip(names, expected, strict=True)) if expected else {})
