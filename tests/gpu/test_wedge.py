"""Any driver call may hang or crawl; what a scrape shows then, and afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from stagewatch.clock.collector import ClockCollector
from stagewatch.core.runner import Job, Runner
from stagewatch.gpu.collector import GpuCollector
from stagewatch.gpu.reader import GpuReader
from stagewatch.web.agent_server import AgentServer
from tests.exposition import Series, series_of
from tests.fakes.nvml import FakeNvml
from tests.gpu.gpu_scene import MakeGpu, metrics, of
from tests.waiting import wait_for

SOMETIMES = {"nvmlShutdown": {"gpu.5.lost": "1"}, "nvmlGpmSampleFree": {"gpu.0.mig": "0"}}
"""Calls that are only made when something has happened."""
CALLS = (
    "nvmlInitWithFlags",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetFieldValues",
    "nvmlGpmSampleGet",
    "nvmlEventSetWait_v2",
    "nvmlDeviceGetGpuInstanceId",
    *SOMETIMES,
)
"""One call of each kind: at the start, of readings, fields, profiling, events and instances."""
USUAL = {"gpu.0.mig": "1"}


class Node:
    """An agent on a fake driver, which asks for every tier each time, and its `/metrics`."""

    def __init__(self, nvml: FakeNvml, release_file: Path) -> None:
        self.nvml = nvml
        self.reader = GpuReader(backoff=(0.01, 0.02), release_file=release_file)
        tiers = dict.fromkeys(("fast", "medium", "slow"), 0.1)
        gpu = GpuCollector(self.reader, source="nvml", intervals=tiers)
        self.gpu = Job("gpu", gpu, 0.5)
        self.runner = Runner([self.gpu, Job("clock", ClockCollector(), 10.0)])
        self.server = AgentServer(("127.0.0.1", 0), self.runner, node="gpu-node-17")

    def patience(self, seconds: float, interval: float) -> None:
        """How long a call may take, and how long a third of what it found lives."""
        self.reader._timeout = self.reader._start_timeout = seconds
        self.gpu.interval = interval

    def scrape(self) -> Series:
        with urlopen(f"http://127.0.0.1:{self.server.port}/metrics", timeout=30) as answer:
            return series_of(answer.read().decode())

    def recovered(self) -> bool:
        """Whether a scrape shows all GPUs and the one instance, and nothing stuck any more."""
        shown = self.scrape()
        stuck = of(shown, "stagewatch_collector_stuck_seconds", collector="gpu")
        return (
            stuck == [0] and of(shown, "gpu_up", mig="7:0") == [1] and len(of(shown, "gpu_up")) == 9
        )

    def stuck(self) -> Series | None:
        """What a scrape shows once the GPUs are gone from it and it says why."""
        shown = self.scrape()
        seconds = of(shown, "stagewatch_collector_stuck_seconds", collector="gpu")
        return shown if not of(shown, "gpu_up") and seconds and seconds[0] > 0 else None


@pytest.fixture(scope="module")
def node(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("wedge")
    nvml = FakeNvml(nvml_library, directory)
    nvml.replace(USUAL)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in nvml.environ.items():
            environment.setenv(name, value)
        node = Node(nvml, directory / "release-gpu")
        node.runner.start()
        node.server.start()
        wait_for(node.recovered, "the GPUs are read")
    yield node
    nvml.clear()
    node.server.close()
    node.runner.close()


@pytest.mark.parametrize("call", CALLS)
def test_hang_in_any_call_shows_and_passes(
    node: Node, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for name, value in node.nvml.environ.items():
        monkeypatch.setenv(name, value)
    node.patience(0.3, interval=0.1)
    node.nvml.replace({**USUAL, **SOMETIMES.get(call, {}), f"hang.{call}": "1"})
    if call not in SOMETIMES and (pid := node.reader.pid) is not None:
        os.kill(pid, signal.SIGKILL)  # so that the driver is opened anew, by the calls of a start
    shown = wait_for(node.stuck, "the scrape says that the driver hangs")
    assert of(shown, "stagewatch_collector_success", collector="gpu") == [0]
    assert of(shown, "stagewatch_collector_success", collector="clock") == [1]
    assert of(shown, "clock_offset_seconds") != []
    node.patience(30.0, interval=0.5)
    node.nvml.replace(USUAL)
    wait_for(node.recovered, "the GPUs are read again")


def test_slow_driver_is_waited_for_and_its_cost_shown(nvml: FakeNvml, make_gpu: MakeGpu) -> None:
    collector = make_gpu()
    nvml.set("delay.nvmlDeviceGetUtilizationRates", 50_000)
    shown = metrics(collector)
    assert of(shown, "gpu_utilization_ratio") == [0.97] * 8
    assert of(shown, "stagewatch_gpu_tier_duration_seconds", tier="fast")[0] >= 8 * 0.05
