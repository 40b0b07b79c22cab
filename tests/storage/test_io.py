"""The node's waiting for storage, from fixtures and from this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagewatch.core.errors import SourceError
from stagewatch.storage import io
from stagewatch.storage.io import IoCollector


@pytest.fixture
def node(tmp_path: Path) -> tuple[Path, Path]:
    """A /proc and a /sys with two disks, a partition and a loop device."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    (proc / "pressure").mkdir(parents=True)
    (proc / "pressure" / "io").write_text("full avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n")
    (proc / "pressure" / "memory").write_text("garbage total=\nsome total=x\n")
    numbers = "10 1 80 500 20 2 160 1500 3 7000 2000 5 0 40 250 6 125"
    names = ("nvme0n1", "nvme0n1p1", "cciss/c0d0", "loop0")
    lines = [f"1 0 {name} {numbers}\n" for name in names]
    (proc / "diskstats").write_text("".join(["garbage\n", "1 0 sda x\n", *lines]))
    for name in ("nvme0n1", "cciss!c0d0", "loop0"):
        (sys / "block" / name).mkdir(parents=True)
    return proc, sys


def test_pressure_and_disks(node: tuple[Path, Path]) -> None:
    out = IoCollector(*node).collect()
    assert out.families[io.PRESSURE] == {("io", "full"): 2.5}
    assert out.value(io.DISK_BUSY, "nvme0n1") == 7.0
    assert out.value(io.DISK_SECONDS, "nvme0n1", "write") == 1.5
    assert out.value(io.DISK_BYTES, "nvme0n1", "write") == 160 * 512
    assert out.value(io.DISK_BYTES, "nvme0n1", "flush") is None


def test_partitions_and_loop_devices_are_left_out(node: tuple[Path, Path]) -> None:
    out = IoCollector(*node).collect()
    assert set(out.families[io.DISK_BUSY]) == {("nvme0n1",), ("cciss/c0d0",)}


def test_a_proc_without_the_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        IoCollector(tmp_path, tmp_path).collect()
