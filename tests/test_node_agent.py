"""The whole node agent as a process: what dies leaves the others working."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stagewatch.core.processes import Children
from tests.fakes.nvml import FakeNvml
from tests.node_agent import TRAINER, NodeAgent
from tests.waiting import wait_for


@pytest.fixture
def agent(tmp_path: Path, nvml: FakeNvml) -> Iterator[NodeAgent]:
    running = NodeAgent(tmp_path, "--collector.gpu.timeout", "1s", **nvml.environ)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def ranks(agent: NodeAgent) -> Iterator[list[subprocess.Popen[bytes]]]:
    with Children() as children:
        yield [
            children.start(
                [sys.executable, "-c", TRAINER, str(rank)],
                environ=os.environ | {"STAGEWATCH_DIR": str(agent.ranks)},
            )
            for rank in range(2)
        ]


def gpu_reader(agent: NodeAgent) -> psutil.Process | None:
    for child in psutil.Process(agent.process.pid).children():
        with contextlib.suppress(psutil.Error):
            if "stagewatch.gpu.nvml.driver" in child.cmdline():
                return child
    return None


def test_a_restarted_agent_takes_the_ranks_up_with_all_they_recorded(
    agent: NodeAgent, ranks: list[subprocess.Popen[bytes]]
) -> None:
    def completed() -> float:
        return agent.value("rl_stage_duration_seconds_count", job_id="540", stage="train") or 0

    wait_for(lambda: completed() > 20, "stages are counted")
    ranks[1].kill()  # a rank that died before the restart must not be forgotten either
    ranks[1].wait()
    wait_for(lambda: agent.value("rl_rank_up", rank="1") == 0, "the killed rank is down")
    before = completed()
    agent.process.kill()
    agent.process.wait()
    agent.start()
    wait_for(lambda: completed() >= before, "nothing that the records hold is lost")
    assert agent.value("rl_rank_up", rank="1") == 0
    wait_for(lambda: agent.value("rl_rank_wait_class", rank="0", **{"class": "parked"}), "classed")


def test_a_killed_gpu_reader_is_replaced_and_harms_nothing_else(agent: NodeAgent) -> None:
    wait_for(lambda: agent.value("gpu_temperature_celsius", gpu="7"), "GPUs are read")
    reader = gpu_reader(agent)
    reader.kill()
    wait_for(
        lambda: (new := gpu_reader(agent)) is not None and new.pid != reader.pid,
        "a new reader is started after the back-off",
    )
    wait_for(lambda: agent.value("stagewatch_collector_success", collector="gpu") == 1, "it reads")
    assert agent.value("stagewatch_collector_success", collector="clock") is not None


def test_a_hanging_driver_stops_neither_scrapes_nor_the_end_of_the_agent(
    agent: NodeAgent, nvml: FakeNvml
) -> None:
    wait_for(lambda: agent.value("gpu_temperature_celsius", gpu="0"), "GPUs are read")
    nvml.set("hang.nvmlDeviceGetTemperature", 1)
    nvml.set("hang.nvmlDeviceGetTemperatureV", 1)
    nvml.set("hang.nvmlDeviceGetFieldValues", 1)

    def stuck() -> float:
        return agent.value("stagewatch_collector_stuck_seconds", collector="gpu") or 0

    wait_for(lambda: stuck() > 0, "the collector is stuck")
    wait_for(lambda: agent.value("gpu_temperature_celsius") is None, "GPU series disappear")
    first = stuck()
    wait_for(lambda: stuck() > first, "the time it is stuck grows")
    assert agent.get("/-/ready") == (200, "ready\n")
    assert agent.value("stagewatch_collector_success", collector="gpu") == 0
    agent.process.terminate()
    assert agent.process.wait(timeout=30) == 0


def test_sigterm_ends_the_agent_and_its_reader(agent: NodeAgent) -> None:
    reader = wait_for(lambda: gpu_reader(agent), "the reader runs")
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(timeout=30) == 0
    wait_for(lambda: not reader.is_running() or reader.status() == "zombie", "the reader ended")


def test_an_unreadable_record_directory_costs_only_what_is_about_the_records(
    tmp_path: Path,
) -> None:
    (no_directory := tmp_path / "file").write_text("")
    agent = NodeAgent(tmp_path, "--record-dir", str(no_directory))
    agent.start()
    try:
        names = ("kmsg", "stages", "ranks", "rank_io", "processes", "blocked_tasks", "net")
        wait_for(lambda: all(_state(agent, name) is not None for name in names), "all have run")
        failing = [name for name in names if not _state(agent, name)]
        assert failing == ["stages", "ranks"]
    finally:
        agent.stop()


def _state(agent: NodeAgent, collector: str) -> bool | None:
    """Whether a collector does its work, be there data or not; none before its first call."""
    if agent.value("stagewatch_collector_no_data", collector=collector):
        return True
    success = agent.value("stagewatch_collector_success", collector=collector)
    return None if success is None else bool(success)
