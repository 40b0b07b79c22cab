"""Health of GPUs as a scrape shows it: errors, repairs, links, throttling, MIG, profiling."""

from __future__ import annotations

import time

from stagewatch.gpu.nvml.gpm import SHORTEST
from tests.fake_clock import Clock
from tests.fakes.nvml import FakeNvml
from tests.gpu.gpu_scene import UUID, MakeGpu, Series, labels_of, metrics, of


def twice(nvml: FakeNvml, make_gpu: MakeGpu) -> Series:
    """Two collections, far enough apart for an average between them."""
    collector = make_gpu()
    metrics(collector)
    time.sleep(SHORTEST)
    return metrics(collector)


def test_ecc_storm_shows_by_memory_kind_and_scope(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    assert set(of(metrics(collector), "gpu_ecc_errors_total")) == {0}
    nvml.set("gpu.6.ecc.dram.corrected.volatile", 150_000)
    nvml.set("gpu.6.ecc.sram.uncorrected.volatile", 2)
    nvml.set("gpu.6.sram_threshold", 1)
    clock.now += 60
    shown = metrics(collector)
    ecc = {"gpu": "6", "scope": "volatile"}
    assert of(shown, "gpu_ecc_errors_total", memory="dram", kind="corrected", **ecc) == [150_000]
    assert of(shown, "gpu_ecc_errors_total", memory="sram", kind="uncorrected", **ecc) == [2]
    assert of(shown, "gpu_sram_ecc_threshold_exceeded") == [0, 0, 0, 0, 0, 0, 1, 0]


def test_dead_nvlink_is_named(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.set("gpu.4.nvlink.11", 0)
    shown = metrics(make_gpu())
    assert len(of(shown, "gpu_nvlink_up", gpu="4")) == 18
    down = [key for (name, key), value in shown.items() if name == "gpu_nvlink_up" and not value]
    assert [dict(key) for key in down] == [{"gpu": "4", "uuid": UUID + "4", "link": "11"}]


def test_throttling_now_shows_by_reason(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.set("gpu.2.throttle", 0x48)
    nvml.set("gpu.3.throttle", 0x01)  # idle is no throttling
    shown = metrics(make_gpu())
    active = {
        (dict(key)["gpu"], dict(key)["reason"])
        for (name, key), value in shown.items()
        if name == "gpu_throttle_active" and value
    }
    assert active == {("2", "hw_slowdown"), ("2", "hw_thermal")}


def test_fabric_that_never_came_up_shows(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.set("gpu.0.fabric.state", 2)
    nvml.set("gpu.1.fabric.status", 999)
    nvml.set("gpu.2.fabric.health", 0xA9)
    shown = metrics(make_gpu())
    assert of(shown, "gpu_fabric_state") == [2, 3, 3, 3, 3, 3, 3, 3]
    assert of(shown, "gpu_fabric_failed", gpu="0") == []  # not known while it is in progress
    assert of(shown, "gpu_fabric_failed", gpu="1") == [1]
    assert of(shown, "gpu_fabric_unhealthy", gpu="2", condition="degraded_bandwidth") == [1]
    assert of(shown, "gpu_fabric_unhealthy", gpu="3", condition="degraded_bandwidth") == [0]


def test_mig_instances_are_gpus_of_their_own(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.set("gpu.1.mig", 3)
    shown = twice(nvml, make_gpu)
    infos = labels_of(shown, "gpu_info", gpu="1")
    assert len(infos) == 4
    instance = {"gpu": "1", "uuid": "MIG-fa4e0000-0000-4000-8000-000002000001", "mig": "8:0"}
    (info,) = [one for one in infos if one.get("mig") == "8:0"]
    assert info["model"] == "NVIDIA H200 MIG 1g.18gb"
    assert info["type"] == "h200"
    assert of(shown, "gpu_memory_total_bytes", **instance) == [143771 * 2**20 // 8]
    assert of(shown, "gpu_sm_active_ratio", **instance) == [0.94]
    assert of(shown, "gpu_processes", **instance) == [0]
    assert of(shown, "gpu_temperature_celsius", **instance) == []
    assert of(shown, "gpu_up", **instance) == [1]
    assert len(of(shown, "gpu_temperature_celsius")) == 8


def test_instances_of_a_lost_gpu_are_down_with_it(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    clock = Clock()
    nvml.set("gpu.0.mig", 2)
    collector = make_gpu(clock)
    metrics(collector)
    nvml.set("gpu.0.lost", 1)
    clock.now += 1
    assert of(metrics(collector), "gpu_up", gpu="0") == [0, 0, 0]
