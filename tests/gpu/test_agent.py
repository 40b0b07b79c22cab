"""GPUs by a whole node agent over HTTP: releasing them, and errors from the kernel log."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml
from tests.node_agent import NodeAgent
from tests.waiting import wait_for

UUID = "GPU-fa4e0000-0000-4000-8000-00000000000"


@pytest.fixture
def agent(tmp_path: Path, nvml: FakeNvml) -> Iterator[NodeAgent]:
    (tmp_path / "kmsg").touch()
    running = NodeAgent(
        tmp_path,
        *("--collector.kmsg.path", str(tmp_path / "kmsg")),
        *("--collector.kmsg.state-file", str(tmp_path / "kmsg.json")),
        **nvml.environ,
    )
    running.start()
    yield running
    running.stop()


def read(agent: NodeAgent) -> bool:
    return agent.value("gpu_temperature_celsius", gpu="3") is not None


def is_free(device: Path) -> bool:
    """Whether another could open the device exclusively."""
    with device.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_the_release_file_lets_go_of_the_gpus_and_the_agent_says_so(
    agent: NodeAgent, nvml: FakeNvml, tmp_path: Path
) -> None:
    wait_for(lambda: read(agent), "the GPUs are read")
    assert not is_free(nvml.device)
    (tmp_path / "release-gpu").touch()
    wait_for(lambda: is_free(nvml.device), "the device is let go of")
    wait_for(
        lambda: agent.value("stagewatch_gpu_reader_released") == 1 and not read(agent),
        "the metrics say so",
    )
    assert is_free(nvml.device)
    assert agent.value("stagewatch_collector_success", collector="gpu") == 1


def test_gpu_that_falls_off_the_bus_shows_in_every_way(
    agent: NodeAgent, nvml: FakeNvml, tmp_path: Path
) -> None:
    wait_for(lambda: read(agent), "the GPUs are read")
    nvml.set("gpu.3.lost", 1)
    nvml.set("gpu.3.xid.0", 79)
    with (tmp_path / "kmsg").open("a") as log:
        stamp = int(time.monotonic() * 1e6)
        log.write(f"3,1,{stamp},-;NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n")
    wait_for(lambda: agent.value("gpu_up", gpu="3") == 0, "the GPU is down")
    labels = {"gpu": "3", "uuid": UUID + "3", "xid": "79", "severity": "critical"}
    wait_for(lambda: agent.value("gpu_xid_errors_total", **labels), "the error is counted")
    assert agent.value("gpu_xid_errors_total", **labels) == 1
    assert not read(agent)
    assert agent.value("gpu_temperature_celsius", gpu="2") is not None
