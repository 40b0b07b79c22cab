"""Which job a GPU belongs to, from prolog, environments and processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.gpu_scene import metrics, of
from tests.gpu.jobs_scene import MIG, UUID, Node, owners

V2 = "system.slice/slurmstepd.scope"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_prolog_tells_every_gpu_of_a_job_before_it_has_a_process(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="540", SLURM_JOB_USER="alice", SLURM_JOB_GPUS="0,1")
    shown = node.show()
    assert owners(shown) == {"3": "540", "2": "540"}  # /dev/nvidia0 is the driver's GPU 3
    assert of(shown, "gpu_job_info", job_id="540", user="alice", uuid=UUID + "3") == [1]
    node.prolog("epilog.sh", SLURM_JOB_ID="540")
    assert owners(node.show()) == {}


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_JOB_ID": "../../etc/passwd"},
        {"SLURM_JOB_ID": "540", "STAGEWATCH_JOBS_DIR": "/proc/nowhere"},
    ],
)
@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_prolog_and_epilog_never_keep_a_job_from_starting(
    node: Node, script: str, environ: dict[str, str]
) -> None:
    node.prolog(script, **environ)


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_root_follows_no_link_that_somebody_has_put_there(node: Node, script: str) -> None:
    """The directory above once belonged to the agent's user, who may be taken over."""
    (victim := node.root / "victim").mkdir()
    for name in (".in-use", "540", ".540.new"):
        (victim / name).write_text("kept")
    (node.root / "jobs").rmdir() if (node.root / "jobs").exists() else None
    (node.root / "jobs").symlink_to(victim)
    node.prolog(script, SLURM_JOB_ID="540", SLURM_JOB_GPUS="0")
    assert [file.read_text() for file in victim.iterdir()] == ["kept"] * 3


def test_job_local_numbers_are_never_taken_for_the_drivers(node: Node) -> None:
    step = node.cgroup(f"{V2}/job_540/step_0/user/task_0")
    node.process(100, step, SLURM_JOB_ID="540", SLURM_STEP_GPUS="2", CUDA_VISIBLE_DEVICES="0")
    assert owners(node.show()) == {"1": "540"}


@pytest.mark.parametrize(
    "path",
    [
        f"{V2}/job_540/step_0/user/task_0",
        "system.slice/node01_slurmstepd.scope/job_540/step_0/user/task_0",
        f"{V2}/s5K1KKYAYG5D00/step_0/user/task_0",
    ],
)
def test_processes_tell_under_every_layout_of_cgroups(node: Node, path: str) -> None:
    step = node.cgroup(path)
    node.process(100, step, SLURM_JOB_ID="540", SLURM_STEP_GPUS="0,3", SLURM_JOB_USER="alice")
    shown = node.show()
    assert owners(shown) == {"0": "540", "3": "540"}
    assert set(of(shown, "gpu_job_info", user="alice")) == {1}


def test_gpus_of_the_first_node_are_not_believed_on_the_second(node: Node) -> None:
    step = node.cgroup(f"{V2}/job_540/step_0/user/task_0")
    node.process(100, step, SLURM_JOB_ID="540", SLURM_JOB_GPUS="0,1,2", SLURM_JOB_NUM_NODES="2")
    assert owners(node.show()) == {}


def test_batch_script_tells_the_gpus_of_the_whole_job(node: Node) -> None:
    batch = node.cgroup(f"{V2}/job_540/step_batch/user/task_0")
    node.process(100, batch, SLURM_JOB_ID="540", SLURM_JOB_GPUS="0-2", SLURM_JOB_NUM_NODES="2")
    assert owners(node.show()) == {"3": "540", "2": "540", "1": "540"}


def test_gpu_given_but_held_by_nobody_shows_for_how_long(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="540", SLURM_JOB_GPUS="0,1")
    node.holders = {3: {100: 1e9}}
    assert of(node.show(), "gpu_allocated_idle_seconds", gpu="2", job_id="540") == [0]
    node.clock.now += 90
    shown = node.show()
    assert of(shown, "gpu_allocated_idle_seconds", gpu="2") == [90]
    assert of(shown, "gpu_allocated_idle_seconds", gpu="3") == []
    node.holders[2] = {101: 1e9}
    assert of(node.show(), "gpu_allocated_idle_seconds") == []


def test_gpu_whose_processes_may_not_be_seen_is_not_called_idle(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="540", SLURM_JOB_GPUS="0")
    node.hidden = 1
    assert of(node.show(), "gpu_allocated_idle_seconds") == []


def test_process_that_outlives_its_job_shows_for_how_long(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="540", SLURM_JOB_GPUS="0")
    node.process(100, "system.slice/other.service", SLURM_JOB_ID="540")
    node.process(200, "system.slice/other.service")  # not a job's: a daemon of the site
    node.holders = {3: {100: 1e9, 200: 1e9}}
    assert of(node.show(), "gpu_orphaned_process_seconds") == []
    node.prolog("epilog.sh", SLURM_JOB_ID="540")
    node.show()
    node.clock.now += 30
    shown = node.show()
    assert of(shown, "gpu_orphaned_process_seconds", gpu="3", job_id="540", pid="100") == [30]
    assert of(shown, "gpu_orphaned_process_seconds", pid="200") == []


def test_jobs_from_before_the_prolog_was_set_up_are_no_orphans(node: Node) -> None:
    for pid, job in ((100, "540"), (101, "541")):
        step = node.cgroup(f"{V2}/job_{job}/step_0/user/task_0")
        node.process(pid, step, SLURM_JOB_ID=job, SLURM_STEP_GPUS=str(pid - 100))
    node.holders = {3: {100: 1e9}, 2: {101: 1e9}}
    node.prolog(SLURM_JOB_ID="541", SLURM_JOB_GPUS="1")
    shown = node.show()
    assert of(shown, "gpu_orphaned_process_seconds") == []
    assert owners(shown) == {"3": "540", "2": "541"}
    node.prolog("epilog.sh", SLURM_JOB_ID="541")  # but a process keeps its cgroup
    node.show()
    node.clock.now += 30
    shown = node.show()
    assert of(shown, "gpu_orphaned_process_seconds", job_id="541", pid="101") == [30]
    assert of(shown, "gpu_orphaned_process_seconds", job_id="540") == []


def test_mig_instances_are_told_by_uuid(node: Node) -> None:
    node.mig = True
    node.prolog(SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", CUDA_VISIBLE_DEVICES=MIG)
    assert owners(node.show()) == {"7:0": "7"}


def test_gpu_whose_index_changed_is_shown_under_the_new_one(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="540", SLURM_JOB_GPUS="0")
    assert owners(node.show()) == {"3": "540"}
    row = {"gpu": "2", "uuid": UUID + "3", "values": {}}  # a GPU before it has left the bus
    node.gpus.update("fast", [row])
    assert owners(metrics(node.collector)) == {"2": "540"}


def test_two_jobs_on_one_gpu_both_show(node: Node) -> None:
    node.prolog(SLURM_JOB_ID="540", SLURM_JOB_GPUS="0")
    node.prolog(SLURM_JOB_ID="541", SLURM_JOB_GPUS="0")
    keys = [dict(key)["job_id"] for name, key in node.show() if name == "gpu_job_info"]
    assert sorted(keys) == ["540", "541"]
