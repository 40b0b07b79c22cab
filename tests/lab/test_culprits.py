"""Every way in which a job hangs here: the culprit's rank, node and evidence are named."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.lab.lab import Job

NAMED = {
    "s0_8": {(3, "left_loop_early")},
    "behind_spin": {(3, "awaited")},
    "torch": {(2, "awaited")},
    "raised": {(2, "process_gone")},
    "dead_mount": {(1, "io_blocked")},
    "stopped": {(2, "odd_one_out")},
    "container": {(1, "left_loop_early")},
    "pair": {(1, "left_loop_early")},
    "shell": {(2, "left_loop_early")},
}


def names(job: Job, expected: set[tuple[int, str]]) -> None:
    """Wait until exactly these are named, each on its own node."""
    wanted = {(rank, job.nodes[rank], evidence) for rank, evidence in expected}
    try:
        job.lab.wait(lambda: job.culprits() == wanted, "the culprit is named", 200)
    except AssertionError as error:
        raise AssertionError(f"{job.culprits()} is named, not {wanted}; {job.state()}") from error


@pytest.mark.parametrize(
    "scene", [pytest.param(name, marks=pytest.mark.scene(name)) for name in NAMED]
)
def test_the_culprit_is_named_with_its_node_and_the_evidence(scene: str, job: Job) -> None:
    names(job, NAMED[scene])
    job.lab.wait(lambda: "JobStalled" in job.firing("critical"), "somebody is woken")


@pytest.mark.scene("s0_8")
def test_a_sync_stall_is_one_page(job: Job) -> None:
    job.lab.wait(lambda: job.firing("critical") == {"JobStalled"}, "the page, and no other")


@pytest.mark.scene("s0_8")
def test_the_whole_jobs_story_is_told_from_prometheus(job: Job) -> None:
    names(job, NAMED["s0_8"])
    job.lab.wait(lambda: job.query("job:rl_wasted_gpu_seconds:total")[0].value > 60, "waste")
    status, said = job.lab.inspect("--prometheus", job.lab.url, "--job", job.job_id)
    assert status == 3, said
    said = " ".join(said.split())
    assert "Job s0-8: rank 3 (pid " in said
    assert "it left the loop early" in said
    assert "train: 8 ranks on node-0, node-1: 7 spin in train, 1 is parked in cleanup." in said
    assert "Wasted so far:" in said


@pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None or os.geteuid() != 0,
    reason="needs py-spy (pip install py-spy), and root to look into other processes",
)
@pytest.mark.scene("s0_8")
def test_the_stacks_of_the_suspect_and_of_another_rank_are_shown(job: Job) -> None:
    names(job, NAMED["s0_8"])
    directory = str(job.lab.record_dir("node-0"))
    status, said = job.lab.inspect("--evidence", "--record-dir", directory, "--job", job.job_id)
    assert status == 3, said
    suspect, majority = said.split(", suspect:")[1].split(", majority:")
    assert "order_leave" in suspect
    assert "all_reduce" in majority


@pytest.mark.scene("container")
def test_a_rank_in_a_container_is_named_by_its_pid_on_the_host(job: Job) -> None:
    job.lab.wait(job.culprits, "a culprit")
    (found,) = job.query("job:rl_stall:culprit")
    assert job.pid(1) == 1, "as the rank itself sees it"
    parents = {parent.pid for parent in psutil.Process(int(found.labels["pid"])).parents()}
    assert job.processes[1].pid in parents


@pytest.mark.scene("pair")
def test_a_rollout_rank_is_not_mistaken_for_the_train_rank_of_the_same_number(job: Job) -> None:
    names(job, {(1, "left_loop_early")})
    assert not job.query("job:rl_stall:active", role="rollout")
    assert not job.query("job:rl_stall:culprit", role="rollout")


@pytest.mark.scene("group")
def test_when_all_spin_alike_the_group_is_blamed_and_nobody_is_named(job: Job) -> None:
    job.lab.wait(lambda: "JobStalled" in job.firing("critical"), "the alert")
    assert job.query("job:rl_stall:group_only")
    assert not job.ever("job:rl_stall:culprit", 600)


@pytest.mark.scene("event_lost")
def test_a_deadlock_in_which_nobody_spins_is_a_stall(job: Job) -> None:
    job.lab.wait(lambda: "JobStalled" in job.firing("critical"), "the alert")
    assert not job.ever("job:rl_stall:culprit", 600)


@pytest.mark.scene("raised")
def test_the_first_failure_of_a_rank_outlives_it(job: Job) -> None:
    job.lab.wait(lambda: "FirstFailure" in job.firing(), "the alert")
    (found,) = job.query("rl_rank_first_failure_timestamp_seconds")
    assert (found.labels["rank"], found.labels["stage"]) == ("2", "reward")
    assert found.labels["error"] == "RuntimeError"


@pytest.mark.scene("straggler")
def test_a_straggler_is_named_while_its_stage_is_open(job: Job) -> None:
    asked = time.monotonic()

    def named() -> bool:
        nonlocal asked
        if time.monotonic() - asked > 60:  # a machine that is busy has looked too late
            asked = time.monotonic()
            job.order("rollout slow 16", 5)
        return bool(job.ever("rank:rl_straggler:ratio", 600))

    job.lab.wait(named, "the straggler is named")
    (found,) = job.ever("rank:rl_straggler:ratio", 600)
    assert (found.labels["rank"], found.labels["stage"]) == ("5", "rollout")
    job.lab.wait(lambda: not job.query("rank:rl_straggler:ratio"), "it is through")
    assert not job.ever("job:rl_stall:active", 600)
