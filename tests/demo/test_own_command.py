"""What the demo tells people to type runs the same stagewatch again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stagewatch.demo.scenario import own_command


def test_the_command_runs_from_anywhere_in_an_environment_of_any_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "my checkout" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    command = f"{own_command()} --version"
    done = subprocess.run(["sh", "-c", command], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout[:1].isdigit(), done.stderr
