"""What the TaskProlog of Slurm adds to the environment of a task."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stagewatch.client._flight_recorder import PIPE
from stagewatch.run.command import RAS, RAS_PORTS, nccl

SCRIPT = Path(__file__).parents[2] / "deploy/slurm/task-prolog.sh"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "share/slurm").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "share/slurm")
    (tmp_path / "lib").mkdir()
    return tmp_path


def printed(home: Path, **environ: str) -> dict[str, str]:
    """What it exports, as slurmd reads it."""
    command = ["sh", str(home / "share/slurm/task-prolog.sh")]
    done = subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", **environ},
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line.removeprefix("export ").partition("=") for line in done.stdout.splitlines()]
    return {name: value for name, _, value in lines}


def plugin(home: Path, name: str) -> Path:
    file = home / f"lib/libnccl-profiler-{name}.so"
    file.touch()
    return file


def test_nccl_loads_the_plugin_that_a_site_has_put_there_as_run_has_it(home: Path) -> None:
    assert not {name for name in printed(home) if "NCCL" in name} - {PIPE, RAS}
    inspector = plugin(home, "inspector")
    assert printed(home).items() >= nccl(str(inspector)).items()
    ours = plugin(home, "stagewatch")
    always = PIPE, RAS
    assert {k: v for k, v in printed(home).items() if k not in always} == nccl(str(ours))


def test_a_job_with_a_plugin_of_its_own_keeps_it(home: Path) -> None:
    plugin(home, "inspector")
    assert printed(home, NCCL_PROFILER_PLUGIN="mine").keys() == {PIPE, RAS}


def test_a_task_has_a_pipe_to_the_flight_recorder_whose_name_nobody_guesses(home: Path) -> None:
    names = {printed(home, SLURM_JOB_ID="540")[PIPE] for _ in range(3)}
    assert len(names) == 3
    assert all(re.search(r"/stagewatch-fr-540-[0-9a-f]{16}-$", name) for name in names)
    assert PIPE not in printed(home, **{PIPE: ""})


def test_all_tasks_of_a_job_have_the_same_port_for_ras(home: Path) -> None:
    ports = [printed(home, SLURM_JOB_ID=job)[RAS].partition(":") for job in ("540", "540", "541")]
    assert [host for host, _, _ in ports] == ["localhost"] * 3
    assert [int(port) - RAS_PORTS.start for _, _, port in ports] == [540, 540, 541]
    assert not {PIPE, RAS} & printed(home, NCCL_RAS_ENABLE="0", **{PIPE: ""}).keys()


def test_who_opts_out_keeps_his_environment(home: Path) -> None:
    plugin(home, "stagewatch")
    assert printed(home, STAGEWATCH_OFF="1") == {}
