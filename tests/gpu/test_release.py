"""Letting go of the GPUs on request, so that a reset or a MIG change can go ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.gpu.reader import Released
from tests.fakes.nvml import FakeNvml
from tests.gpu.readers import FAST, Make
from tests.waiting import wait_for


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
