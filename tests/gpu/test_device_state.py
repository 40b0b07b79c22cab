"""What a GPU does, by what was read of it over ten seconds."""

from __future__ import annotations

from typing import Any

import pytest

from stagewatch.gpu.device_state import WINDOW_SECONDS, Device, DeviceStates
from stagewatch.gpu.directory import GpuDirectory
from stagewatch.gpu.readings import Reading
from tests.fake_clock import Clock

KERNELS = {Reading.UTILIZATION.key(): 1.0, Reading.SM_ACTIVE.key(): 0.9}
TRAINS = KERNELS | {Reading.TENSOR_ACTIVE.key(): 0.35, Reading.DRAM_ACTIVE.key(): 0.4}
SPINS = KERNELS | {Reading.TENSOR_ACTIVE.key(): 0.0, Reading.DRAM_ACTIVE.key(): 0.002}
DECODES = SPINS | {Reading.DRAM_ACTIVE.key(): 0.6}
LOADS = SPINS | {Reading.PCIE_THROUGHPUT.key("rx"): 12e9, Reading.PCIE_THROUGHPUT.key("tx"): 0.0}
POLLS = SPINS | {Reading.PCIE_THROUGHPUT.key("rx"): 5e7}
RESTS = {Reading.UTILIZATION.key(): 0.0, Reading.POWER.key(): 70.0}
AMPERE = {Reading.UTILIZATION.key(): 1.0}


def row(values: dict[Any, float], **more: Any) -> dict[str, Any]:
    return {"gpu": "0", "uuid": "GPU-0", "mig": "", "values": values} | more


@pytest.fixture
def states(clock: Clock) -> DeviceStates:
    return DeviceStates(clock)


def read(
    states: DeviceStates, clock: Clock, *seconds: dict[Any, float], processes: int = 1
) -> Device | None:
    """What it does after some seconds, each with what was read then."""
    medium = {Reading.PROCESSES.key(): float(processes), Reading.POWER_LIMIT.key(): 400.0}
    states.note("medium", [row(medium)])
    for values in seconds:
        clock.now += 1
        states.note("fast", [row(values)])
    return states.state("GPU-0")


@pytest.mark.parametrize(
    ("values", "does"),
    [
        (TRAINS, Device.WORKS),
        (DECODES, Device.WORKS),
        (SPINS, Device.SPINS),
        (POLLS, Device.SPINS),
        (LOADS, Device.MOVES),
        (RESTS, Device.IDLE),
        (AMPERE | {Reading.POWER.key(): 320.0}, Device.WORKS),
        (AMPERE | {Reading.POWER.key(): 110.0}, Device.SPINS),
        (AMPERE, None),
        ({Reading.POWER.key(): 320.0}, None),
        ({Reading.SM_ACTIVE.key(): 0.0}, Device.IDLE),  # a MIG instance
    ],
)
def test_what_a_gpu_does(
    states: DeviceStates, clock: Clock, values: dict[Any, float], does: Device | None
) -> None:
    assert read(states, clock, *[values] * 8) == does


def test_an_evaluation_that_waits_for_its_data_works_all_the_same(
    states: DeviceStates, clock: Clock
) -> None:
    assert read(states, clock, *[TRAINS, RESTS, RESTS, RESTS] * 2) is Device.WORKS


def test_of_a_gpu_of_several_processes_nobody_knows_whose_kernels_run(
    states: DeviceStates, clock: Clock
) -> None:
    assert read(states, clock, *[TRAINS] * 8, processes=2) is None
    assert read(states, clock, *[RESTS] * 12, processes=2) is Device.IDLE


def test_a_gpu_that_was_not_read_lately_is_not_known(states: DeviceStates, clock: Clock) -> None:
    assert read(states, clock, *[TRAINS] * 2) is None
    assert read(states, clock, *[TRAINS] * 2) is Device.WORKS
    clock.now += WINDOW_SECONDS
    assert states.state("GPU-0") is None
    assert states.state("GPU-7") is None


def test_a_lost_gpu_is_told_and_one_that_is_gone_forgotten(clock: Clock) -> None:
    directory = GpuDirectory()
    directory.update("fast", [row({}, lost=True)])
    assert directory.state("GPU-0") == "lost"
    directory.update("fast", [])
    assert directory.state("GPU-0") == ""


def test_a_process_has_the_gpu_on_which_it_has_the_most_memory() -> None:
    """PyTorch's ranks may have a small context on the first GPU beside their own."""
    directory = GpuDirectory()
    others = {Reading.PROCESS_MEMORY.key(pid): 0.5e9 for pid in (12, 13)}
    own = {Reading.PROCESS_MEMORY.key(12): 60e9}
    directory.update("medium", [row(others), row(own, uuid="GPU-1", gpu="1")])
    assert [directory.of_process(pid) for pid in (12, 13, 14)] == ["GPU-1", "GPU-0", ""]
