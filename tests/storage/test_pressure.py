"""Pressure stall information."""

from __future__ import annotations

from pathlib import Path

from stagewatch.storage.io import read_pressure


def test_totals_are_read_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text(
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=1500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n"
    )
    (tmp_path / "pressure" / "cpu").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
    (tmp_path / "pressure" / "memory").write_text("garbage total=\nsome total=x\n")
    assert read_pressure(tmp_path) == {
        ("cpu", "some"): 9e-6,
        ("io", "some"): 1.5,
        ("io", "full"): 0.25,
    }


def test_a_kernel_without_it_has_none(tmp_path: Path) -> None:
    assert read_pressure(tmp_path) == {}
