"""Ranks by their environment, among real processes and their launchers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.environment_scan import SCAN_SECONDS, EnvironmentScan
from stagewatch.ranks.model import Rank
from tests.fake_clock import Clock
from tests.fakes.open_files import OpenFiles
from tests.golden import FIXTURES
from tests.running import Python
from tests.waiting import wait_for

SLEEP = """
import sys, time
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job() -> str:
    """A job that no other process on this machine belongs to."""
    return f"job-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def scan(clock: Clock) -> Iterator[EnvironmentScan]:
    with closing(GuardedFiles()) as files:
        yield EnvironmentScan(Procfs(), files, patience=60, clock=clock)


def of_job(job: str, ranks: list[Rank]) -> list[Rank]:
    return sorted((rank for rank in ranks if rank.job_id == job), key=lambda rank: rank.rank)


def test_a_process_with_a_rank_in_its_environment_is_found(
    python: Python, scan: EnvironmentScan, job: str
) -> None:
    environ = {"SLURM_PROCID": "13", "SLURM_LOCALID": "5", "SLURM_NTASKS": "64"}
    script = python.ready(SLEEP, STAGEWATCH_JOB_ID=job, CUDA_VISIBLE_DEVICES="GPU-1", **environ)
    (rank,) = of_job(job, scan.ranks([]))
    assert (rank.key, rank.pid) == ((job, "unknown", "13"), script.pid)
    assert (rank.local_rank, rank.world_size, rank.gpu) == (5, 64, "GPU-1")


def test_the_launching_shell_is_not_the_rank(
    python: Python, scan: EnvironmentScan, job: str
) -> None:
    shell = ("sh", "-c", '"$@"; true', "sh")
    script = python.ready(SLEEP, prefix=shell, STAGEWATCH_JOB_ID=job, RANK="0")
    (rank,) = of_job(job, scan.ranks([]))
    found = Procfs().stat(rank.pid)
    assert found.parent == script.pid


def test_a_shell_that_executes_the_rank_in_its_place_is_looked_at_again(
    python: Python, scan: EnvironmentScan, job: str, clock: Clock, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    shell = ("sh", "-c", f'read _ <{gate}; exec "$@"', "sh")
    script = python(SLEEP, prefix=shell, STAGEWATCH_JOB_ID=job, RANK="0")

    def runs_the_shell() -> bool:
        stat = Procfs().stat(script.pid)
        return stat is not None and stat.command == "sh"

    wait_for(runs_the_shell, "the shell waits")
    assert of_job(job, scan.ranks([])) == []
    gate.write_text("go\n")
    script.said("ready")
    clock.now += SCAN_SECONDS
    assert [rank.pid for rank in of_job(job, scan.ranks([]))] == [script.pid]


def test_workers_that_inherit_the_variables_are_not_counted_again(
    python: Python, scan: EnvironmentScan, job: str
) -> None:
    script = python(
        """
        import os, time
        from stagewatch.core.processes import die_with_parent
        for _ in range(3):
            if not os.fork():
                die_with_parent()
                break
        print("ready", flush=True)
        time.sleep(600)
        """,
        STAGEWATCH_JOB_ID=job,
        RANK="2",
    )
    wait_for(lambda: script.output().count("ready") == 4, "three data loaders")
    (rank,) = of_job(job, scan.ranks([]))
    assert rank.pid == script.pid


def test_a_worker_of_ray_is_a_rank_by_its_frameworks_number_alone(
    python: Python, scan: EnvironmentScan, job: str
) -> None:
    """`srun ray start`: every worker inherits the task number of the node's raylet."""
    inherited = {"STAGEWATCH_JOB_ID": job, "RAY_JOB_ID": "01000000", "SLURM_PROCID": "3"}
    idle = python(SLEEP, **inherited)
    worker = python(SLEEP, **inherited, RANK="6")
    idle.said("ready")
    worker.said("ready")
    assert [(rank.rank, rank.pid) for rank in of_job(job, scan.ranks([]))] == [(6, worker.pid)]


def test_without_a_job_the_session_of_the_process_names_it(
    python: Python, scan: EnvironmentScan
) -> None:
    script = python.ready(SLEEP, RANK="0")
    assert [rank.pid for rank in of_job(f"session-{script.pid}", scan.ranks([]))] == [script.pid]


@pytest.mark.parametrize("rank", ["abc", "99999999"])
def test_a_variable_that_is_no_number_makes_no_rank(
    rank: str, python: Python, scan: EnvironmentScan, job: str
) -> None:
    python.ready(SLEEP, STAGEWATCH_JOB_ID=job, RANK=rank)
    assert of_job(job, scan.ranks([])) == []


def test_a_fixed_tree() -> None:
    proc = Procfs(FIXTURES / "proc")
    found = EnvironmentScan(proc, OpenFiles(proc.root), patience=60).ranks([4242, 4243])
    assert [(rank.key, rank.pid, rank.local_rank) for rank in found] == [
        (("541", "unknown", "3"), 4300, 1)
    ]
