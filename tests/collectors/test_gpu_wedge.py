"""Every driver call may hang or crawl; what an operator sees then, and afterwards."""

from __future__ import annotations

import time

import pytest

from stagewatch.errors import Stuck
from stagewatch.sources.gpu_reader import GpuReader
from stagewatch.sources.nvml.gpm import SHORTEST
from tests.collectors.gpu_scene import Clock, MakeGpu, Series, metrics, of
from tests.collectors.test_gpu_support import CALLS
from tests.fakes.nvml import FakeNvml
from tests.waiting import wait_for

AT_START = (
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMigMode",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
)
LATER = (*CALLS, "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlEventSetWait_v2")


@pytest.mark.parametrize("call", [*AT_START, *LATER])
def test_hang_in_any_call_is_stuck_and_passes(nvml: FakeNvml, make_gpu: MakeGpu, call: str) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    reader: GpuReader = collector._reader  # type: ignore[assignment]
    if call in LATER:
        metrics(collector)
        time.sleep(SHORTEST)
    reader._timeout = reader._start_timeout = 0.3
    nvml.set(f"hang.{call}", 1)
    clock.now += 60
    with pytest.raises(Stuck):
        metrics(collector)
    nvml.clear()
    reader._timeout = reader._start_timeout = 30.0

    def read() -> Series | None:
        try:
            return metrics(collector)
        except Stuck:
            return None

    assert of(wait_for(read, "the GPUs are read again"), "gpu_up") == [1] * 8


def test_slow_driver_is_waited_for_and_its_cost_shown(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    collector = make_gpu()
    nvml.set("delay.nvmlDeviceGetUtilizationRates", 50_000)
    shown = metrics(collector)
    assert of(shown, "gpu_utilization_ratio") == [0.97] * 8
    assert of(shown, "stagewatch_gpu_tier_duration_seconds", tier="fast")[0] >= 8 * 0.05


def test_hang_of_one_lost_gpu_while_looking_again(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    clock = Clock()
    nvml.set("gpu.3.lost", 1)
    collector = make_gpu(clock)
    reader: GpuReader = collector._reader  # type: ignore[assignment]
    assert of(metrics(collector), "gpu_up", gpu="3") == [0]
    reader._timeout = 0.3
    nvml.set("hang.nvmlShutdown", 1)
    clock.now += 60
    with pytest.raises(Stuck):
        metrics(collector)
