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
from stagewatch.ranks import census
from stagewatch.ranks.activity import WAIT_CLASS, RanksCollector
from stagewatch.ranks.census import CensusCollector
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.environment_scan import RESCAN_SECONDS, EnvironmentScan
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import RECORD_SIZE
from tests.fake_clock import Clock
from tests.fakes.faultfs import FaultFs
from tests.fakes.stuck import get_stuck, getting_stuck
from tests.node_agent import COMMAND, NodeAgent
from tests.running import Python, Script
from tests.waiting import wait_for

Mounts = Callable[[str], FaultFs]

WITH_RECORD = """
import time, stagewatch
stagewatch.init(job_id="540", rank=0)
stagewatch.heartbeat(1)
print("ready", flush=True)
time.sleep(600)
"""
WITHOUT = "import time; print('ready', flush=True); time.sleep(600)"


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


def beside_a_stuck_process(
    python: Python, faultfs: Mounts, record_dir: Path, job: str
) -> tuple[Script, Script, Script]:
    """A rank with a record, one of `job` without, and a process stuck on a silent mount."""
    recorded = python(WITH_RECORD, STAGEWATCH_DIR=str(record_dir))
    bare = python(WITHOUT, STAGEWATCH_JOB_ID=job, RANK="1")
    mount = faultfs("silent")
    stuck = getting_stuck(python, mount)
    for script in (recorded, bare):
        script.said("ready")
    get_stuck(stuck, mount)
    return recorded, bare, stuck


def test_other_ranks_are_found_beside_a_stuck_process(
    python: Python,
    faultfs: Mounts,
    record_dir: Path,
    files: GuardedFiles,
    clock: Clock,
    job: str,
) -> None:
    recorded, bare, stuck = beside_a_stuck_process(python, faultfs, record_dir, job)
    directory = directory_of(record_dir, files, clock)
    found = {rank.pid for rank in directory.ranks() if rank.job_id in ("540", job)}
    assert found == {recorded.pid, bare.pid}
    assert stuck.pid in (directory.look().unread or ())
    shown = CensusCollector(directory).collect()
    assert (shown.value(census.UNREAD) or 0) >= 1
    assert (shown.value(census.AVAILABLE) or 0) >= RECORD_SIZE


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


def test_a_rank_by_environment_that_gets_stuck_is_shown_on(
    python: Python, faultfs: Mounts, record_dir: Path, files: GuardedFiles, clock: Clock, job: str
) -> None:
    mount = faultfs("silent")
    stuck = getting_stuck(python, mount, STAGEWATCH_JOB_ID=job, RANK="3")
    directory = directory_of(record_dir, files, clock)
    assert [rank.pid for rank in directory.ranks() if rank.job_id == job] == [stuck.pid]
    get_stuck(stuck, mount)
    clock.now += RESCAN_SECONDS
    assert [rank.pid for rank in directory.ranks() if rank.job_id == job] == [stuck.pid]
    assert stuck.pid in (directory.look().unread or ())


def test_a_look_does_not_wait_for_a_scan(
    python: Python, faultfs: Mounts, record_dir: Path, files: GuardedFiles, clock: Clock, job: str
) -> None:
    """The scan is seen to be under way when the look has ended, and to end later."""
    recorded, bare, _ = beside_a_stuck_process(python, faultfs, record_dir, job)
    directory = directory_of(record_dir, files, clock, patience=0.0)
    assert [rank.pid for rank in directory.ranks()] == [recorded.pid]

    def bare_is_found() -> bool:
        clock.now += 1
        return bare.pid in {rank.pid for rank in directory.ranks()}

    wait_for(bare_is_found, "the scan has ended")


def test_commands_and_the_agent_go_on(
    python: Python, faultfs: Mounts, record_dir: Path, tmp_path: Path, job: str
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
    agent = NodeAgent(tmp_path, "--record-dir", str(record_dir))
    agent.start()
    try:
        wait_for(
            lambda: agent.value("rl_rank_wait_class", job_id="540", **{"class": "parked"}) == 1,
            "the wait class of the rank with a record",
        )
        wait_for(lambda: agent.value("stagewatch_processes_unread"), "the stuck process is told")
        assert f"/proc/{stuck.pid}/environ does not answer" in agent.log.read_text()
    finally:
        agent.stop()
