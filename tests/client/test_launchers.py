"""Ranks that a launcher starts belong to one job, without any variable of ours."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.hooking import FRAMEWORKS, ROOT
from tests.running import clean_environ

RANK = """
import os
from stagewatch.identity import identify
found = identify()
os.write(1, f"identity {found.job_id} {found.rank}\\n".encode())
"""
"""Writes its line as a whole: its peers write to the same pipe."""

LAUNCHERS = {
    "torchrun": ("torch", "-m torch.distributed.run --nproc_per_node 2", r"torchrun-\w{8}"),
    "torchrun-elastic": (
        "torch",
        "-m torch.distributed.run --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint localhost:0 "
        "--nproc_per_node 2",
        r"torchrun-\w{8}",
    ),
    "accelerate": (
        "accelerate",
        "-m accelerate.commands.launch --multi_gpu --num_processes 2 --main_process_port 0",
        r"torchrun-\w{8}",
    ),
    "deepspeed": (
        "deepspeed",
        "-m deepspeed.launcher.runner --num_gpus 2 --master_port 29533",  # the command `deepspeed`
        r"rendezvous-[0-9a-f]{8}-29533",
    ),
}
"""Module that is needed, the arguments of Python, and what the job is called."""
MPI = {
    "mpiexec.hydra": r"hydra-[1-9]\d*-[0-9a-f]{8}",  # MPICH
    "prterun": r"mpi-prterun-.+@1",  # what mpirun of Open MPI 5 is
}
ENVIRON = clean_environ({"PYTHONPATH": f"{ROOT / 'exporters'}"}) | {
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "DS_ACCELERATOR": "cpu",
}


def ranks_of(command: list[str], directory: Path) -> tuple[set[str], list[int]]:
    """The jobs and the ranks that the started processes take themselves for."""
    script = directory / "rank.py"
    script.write_text(RANK)
    done = subprocess.run(
        [*command, script], env=ENVIRON, capture_output=True, text=True, timeout=120, check=False
    )
    # Two ranks may write at once, and a launcher may put its own words before a line.
    found = re.findall(r"identity (\S+) (\d+)", done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]
    return {job for job, _ in found}, sorted(int(rank) for _, rank in found)


def absent(what: str) -> None:
    """Skip, but not where `make test-frameworks` has installed everything."""
    reason = f"{what} is not installed: make test-frameworks"
    if FRAMEWORKS:
        raise ModuleNotFoundError(reason)
    pytest.skip(reason)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers_of_pytorch_programs(launcher: str, tmp_path: Path) -> None:
    module, arguments, expected = LAUNCHERS[launcher]
    pytest.importorskip("torch", reason="torch is not installed: make test-frameworks")
    if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode:
        absent(module)
    jobs, ranks = ranks_of([sys.executable, *arguments.split()], tmp_path)
    (job,) = jobs
    assert re.fullmatch(expected, job)
    assert ranks == [0, 1]


def test_two_launchers_of_one_job(tmp_path: Path) -> None:
    """As on two nodes, which share nothing but the rendezvous."""
    pytest.importorskip("torch", reason="torch is not installed: make test-frameworks")
    nodes = "--nnodes 2 --rdzv-backend static --master-addr 127.0.0.1 --master-port 29611"
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", *nodes.split(), "--node-rank"]
    started = [
        subprocess.Popen([*command, number, script], env=ENVIRON, stdout=subprocess.PIPE, text=True)
        for number in "01"
    ]
    found = re.findall(r"identity (\S+) (\d+)", "".join(p.communicate()[0] for p in started))
    assert len({job for job, _ in found}) == 1
    assert sorted(rank for _, rank in found) == ["0", "1"]


@pytest.mark.parametrize("launcher", MPI)
def test_mpi(launcher: str, tmp_path: Path) -> None:
    beside = str(Path(sys.executable).parent)
    command = shutil.which(launcher, path=os.pathsep.join([beside, os.environ["PATH"]]))
    if command is None:
        absent(launcher)
    jobs, ranks = ranks_of([str(command), "-n", "2", sys.executable], tmp_path)
    (job,) = jobs
    assert re.fullmatch(MPI[launcher], job)
    assert ranks == [0, 1]
