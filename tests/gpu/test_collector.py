"""The `gpu` collector, from the fake driver to the text of /metrics."""

from __future__ import annotations

import threading
from pathlib import Path

from stagewatch.core.runner import Job, Runner
from stagewatch.gpu import collector as gpu
from stagewatch.gpu.collector import GpuCollector, GpuOptions
from stagewatch.gpu.reader import GpuReader
from tests.fake_clock import Clock
from tests.fakes.nvml import FakeNvml
from tests.gpu.gpu_scene import UUID, MakeGpu, metrics, of
from tests.waiting import wait_for


def test_tiers_are_asked_at_their_own_intervals(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    metrics(collector)
    nvml.set("temperature", 70)
    nvml.set("power_limit", 500000)
    nvml.set("temperature_threshold.1", 80)
    shown = []
    for _ in range(61):
        clock.now += 1
        series = metrics(collector)
        shown.append(
            tuple(
                of(series, name, gpu="0")[0]
                for name in (
                    "gpu_temperature_celsius",
                    "gpu_power_limit_watts",
                    "gpu_temperature_slowdown_celsius",
                )
            )
        )
    assert {reading[0] for reading in shown} == {70}
    assert [reading[1] for reading in shown] == [700] * 9 + [500] * 52
    assert [reading[2] for reading in shown] == [89] * 59 + [80] * 2


def test_gpu_that_comes_back_is_read_again(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    clock = Clock()
    nvml.set("gpu.3.lost", 1)
    collector = make_gpu(clock)
    assert of(metrics(collector), "gpu_up", gpu="3") == [0]
    nvml.clear()
    clock.now += 60
    metrics(collector)
    clock.now += 1
    shown = metrics(collector)
    assert of(shown, "gpu_up", gpu="3") == [1]
    assert of(shown, "gpu_temperature_celsius", gpu="3") == [53]


def test_gpu_that_left_the_bus_is_down_and_those_behind_it_keep_their_names(
    nvml: FakeNvml, make_gpu: MakeGpu
) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    metrics(collector)
    nvml.set("gpu.3.lost", 1)
    clock.now += 1
    metrics(collector)
    nvml.set("gone", 3)  # from the next start on, as after the kernel has removed the device
    for _ in range(2):
        clock.now += 60
        shown = metrics(collector)
    assert of(shown, "gpu_up", uuid=UUID + "3") == [0]
    for number in (0, 1, 2, 4, 5, 6, 7):
        uuid = {"uuid": UUID + str(number)}
        assert of(shown, "gpu_up", **uuid) == [1]
        assert of(shown, "gpu_temperature_celsius", **uuid) == [50 + number]
    assert of(shown, "gpu_temperature_celsius", uuid=UUID + "4", gpu="3") == [54]


def test_recording_stands_in_and_is_labelled_so(tmp_path: Path) -> None:
    shipped = Path(GpuCollector.collect.__code__.co_filename).parents[1] / "recordings"
    options = GpuOptions(recording=shipped / "h200-node-a.jsonl")
    collector = gpu.collector(options)
    shown = metrics(collector)
    assert of(shown, "gpu_info", source="recorded", type="h200") == [1] * 4
    assert of(shown, "gpu_info", source="nvml") == []
    assert len(of(shown, "gpu_tensor_active_ratio")) == 4
    collector.close()


def test_lost_gpu_is_down_and_silent_and_the_others_go_on(
    nvml: FakeNvml, make_gpu: MakeGpu
) -> None:
    clock = Clock()
    collector = make_gpu(clock)
    assert of(metrics(collector), "gpu_up") == [1] * 8
    nvml.set("gpu.3.lost", 1)
    clock.now += 1
    shown = metrics(collector)
    assert of(shown, "gpu_up", uuid=UUID + "3") == [0]
    assert of(shown, "gpu_temperature_celsius", gpu="3") == []
    assert len(of(shown, "gpu_temperature_celsius")) == 7
    clock.now += 10
    assert of(metrics(collector), "gpu_driver_call_errors_total", gpu="3") == []


def test_released_gpus_leave_one_metric_that_says_so(
    nvml: FakeNvml, make_gpu: MakeGpu, tmp_path: Path
) -> None:
    collector = make_gpu()
    assert of(metrics(collector), "stagewatch_gpu_reader_released") == [0]
    (tmp_path / "release-gpu").touch()
    assert metrics(collector) == {("stagewatch_gpu_reader_released", frozenset()): 1}
    (tmp_path / "release-gpu").unlink()
    assert of(metrics(collector), "gpu_up") == [1] * 8


def test_agent_stops_while_the_driver_hangs(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    nvml.set("hang.nvmlInitWithFlags", 1)
    collector = make_gpu(start_timeout=3600.0)
    job = Job("gpu", collector, 0.1)
    runner = Runner([job])
    runner.start()
    reader: GpuReader = collector._reader  # type: ignore[assignment]
    pid = wait_for(lambda: reader.pid, "the reader process is started")
    runner.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "collect-gpu"]
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the reader process is gone")
