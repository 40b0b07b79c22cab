"""The canary itself, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stagewatch.storage.canary_child import run

KIB = 1 << 10
ARGUMENTS = {"bytes": 64 * KIB, "floor_bytes": 0, "large_bytes": 0, "large_interval": 600.0}


class Told:
    """Takes the place of the report to the helper."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.kept: Any = None

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def keep(self, leftover: Any) -> None:
        self.kept = leftover


def canary(directory: Path, kept: Any = None, **changed: float) -> tuple[dict[str, Any], Told]:
    told = Told()
    arguments = ARGUMENTS | {"directory": str(directory)} | changed
    return run(arguments, kept, told), told  # type: ignore[arg-type]


def test_the_larger_file_waits_for_its_time_and_its_figures_stay(tmp_path: Path) -> None:
    result, told = canary(tmp_path, large_bytes=1 << 20)
    again, told_again = canary(tmp_path, told.kept, large_bytes=1 << 20)
    assert again["bandwidth"] == result["bandwidth"]
    assert "large_write" in told.phases
    assert "large_write" not in told_again.phases


def test_no_larger_file_where_it_would_leave_too_little_space(tmp_path: Path) -> None:
    space = os.statvfs(tmp_path)
    available = space.f_bavail * space.f_frsize
    result, told = canary(tmp_path, floor_bytes=available - (512 << 20), large_bytes=1 << 40)
    assert "error" not in result
    assert "skipped" not in result
    assert "large_write" not in told.phases
