"""One process that is stuck in mmap on a silent mount takes no rank's facts away."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.activity import WAIT_CLASS, RanksCollector
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.environment_scan import EnvironmentScan
from stagewatch.ranks.record_directory import RecordDirectory
from tests.fake_clock import Clock
from tests.fakes.faultfs import FaultFs
from tests.fakes.stuck import get_stuck, getting_stuck
from tests.node_agent import COMMAND
from tests.running import Python
from tests.waiting import wait_for

Mounts = Callable[[str], FaultFs]

WITH_RECORD = """
import time, stagewatch
stagewatch.init(job_id="540", rank=0)
stagewatch.heartbeat(1)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job() -> str:
    """A job that no other process on this machine belongs to."""
    return f"job-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def files() -> Iterator[GuardedFiles]:
    with closing(GuardedFiles()) as files:
        yield files


def directory_of(
    record_dir: Path, files: GuardedFiles, clock: Clock, patience: float = 60.0
) -> RankDirectory:
    proc = Procfs()
    scan = EnvironmentScan(proc, files, patience=patience, clock=clock)
    return RankDirectory(RecordDirectory(record_dir, proc), scan, clock=clock)


def test_a_rank_with_a_record_is_not_read_and_shows_that_it_waits_for_the_mount(
    python: Python, faultfs: Mounts, record_dir: Path, files: GuardedFiles, clock: Clock, job: str
) -> None:
    environ = {"STAGEWATCH_DIR": str(record_dir), "STAGEWATCH_JOB_ID": job, "RANK": "3"}
    mount = faultfs("silent")
    stuck = getting_stuck(python, mount, **environ)
    get_stuck(stuck, mount)
    directory = directory_of(record_dir, files, clock)
    activity = RanksCollector(directory, Procfs(), clock=clock)

    def is_in_io() -> bool:
        clock.now += 1
        return activity.collect().value(WAIT_CLASS, job, "train", "3", "io") == 1

    wait_for(is_in_io, "the wait class io")
    assert stuck.pid not in (directory.look().unread or ())


def test_a_command_passes_over_it(
    python: Python, faultfs: Mounts, record_dir: Path, job: str
) -> None:
    recorded = python(WITH_RECORD, STAGEWATCH_DIR=str(record_dir))
    mount = faultfs("silent")
    stuck = getting_stuck(python, mount, STAGEWATCH_JOB_ID=job, RANK="1")
    recorded.said("ready")
    get_stuck(stuck, mount)
    inspect = subprocess.run(
        [*COMMAND, "inspect", "--record-dir", str(record_dir), "--job", "540"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert str(recorded.pid) in inspect.stdout
    assert f"process {stuck.pid} passed over" in inspect.stderr
