"""Letting go of the GPUs on request, so that a reset or a MIG change can go ahead."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from stagewatch.gpu.reader import Released
from tests.fakes.nvml import FakeNvml
from tests.gpu.readers import FAST, FOREVER, Make
from tests.waiting import wait_for


def device_is_free(nvml: FakeNvml) -> bool:
    with nvml.device.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_release_lets_another_open_the_device_exclusively(
    nvml: FakeNvml, make_reader: Make
) -> None:
    reader = make_reader()
    reader.read(FAST)
    assert not device_is_free(nvml)
    reader.release(FOREVER)
    wait_for(lambda: device_is_free(nvml), "the device is let go of")
    for _ in range(3):
        with pytest.raises(Released):
            reader.read(FAST)
        assert device_is_free(nvml)
    reader.release(-1)
    assert reader.read(FAST)
    assert not device_is_free(nvml)


def test_release_of_a_hanging_child_forces_it_out(
    nvml: FakeNvml, make_reader: Make, tmp_path: Path
) -> None:
    file = tmp_path / "release-gpu"
    reader = make_reader(release_file=file)
    reader.read(FAST)
    pid = reader.pid
    reader._timeout = 0.2
    nvml.set("hang.nvmlDeviceGetTemperature", 1)
    file.touch()

    def released() -> bool:
        with pytest.raises(Released):
            reader.read(FAST)
        return reader.pid is None

    wait_for(released, f"the hanging child {pid} is out")
