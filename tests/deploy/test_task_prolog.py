"""What the TaskProlog of Slurm adds to the environment of a task."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/slurm/task-prolog.sh"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "share/slurm").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "share/slurm")
    (tmp_path / "lib").mkdir()
    return tmp_path


def printed(home: Path, **environ: str) -> str:
    """What it exports for NCCL's plugin."""
    command = ["sh", str(home / "share/slurm/task-prolog.sh")]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **environ}, check=True, capture_output=True
    )
    return "".join(line for line in done.stdout.decode().splitlines(True) if "PLUGIN" in line)


def test_nccl_loads_our_plugin_where_a_site_has_put_it(home: Path) -> None:
    assert printed(home) == ""
    plugin = home / "lib/libnccl-profiler-stagewatch.so"
    plugin.touch()
    assert printed(home) == f"export NCCL_PROFILER_PLUGIN={plugin}\n"


@pytest.mark.parametrize("name", ["NCCL_PROFILER_PLUGIN", "STAGEWATCH_OFF"])
def test_a_job_with_a_plugin_of_its_own_or_that_opts_out_keeps_its_environment(
    home: Path, name: str
) -> None:
    (home / "lib/libnccl-profiler-stagewatch.so").touch()
    assert printed(home, **{name: "1"}) == ""
