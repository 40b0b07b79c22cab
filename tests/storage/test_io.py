"""The node's waiting for storage, from files and from this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.errors import NoData
from stagewatch.storage import io
from stagewatch.storage.io import IoCollector


def test_pressure_is_shown_by_resource_and_kind(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text("full avg10=0.00 avg300=0.00 total=2500000\n")
    assert IoCollector(tmp_path).collect().value(io.PRESSURE, "io", "full") == 2.5


def test_a_kernel_without_pressure_has_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="psi"):
        IoCollector(tmp_path).collect()


@pytest.mark.skipif(not Path("/proc/pressure/io").exists(), reason="needs a kernel with PSI")
def test_this_machine_has_figures() -> None:
    out = IoCollector(Path("/proc")).collect()
    assert out.value(io.PRESSURE, "io", "some") is not None
