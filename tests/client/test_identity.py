"""Job, rank and sizes, from what launchers set."""

from __future__ import annotations

import os

import pytest

from stagewatch.identity import identify

SLURM = {"SLURM_JOB_ID": "540", "SLURM_PROCID": "13", "SLURM_LOCALID": "5", "SLURM_NTASKS": "64"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "8c1f", "RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}
RAY = {"RAY_JOB_ID": "02000000"}
RANKED = {"RANK": "1", "WORLD_SIZE": "4"}
RENDEZVOUS = RANKED | {"MASTER_ADDR": "gpu-17", "MASTER_PORT": "29500"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (SLURM, ("540", 13, 5, 64)),
        (TORCHRUN, ("8c1f", 9, 1, 16)),
        (SLURM | TORCHRUN, ("540", 9, 1, 16)),  # SLURM_PROCID counts nodes here
        (SLURM | {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
                  "OMPI_COMM_WORLD_SIZE": "4"}, ("540", 3, 3, 4)),
        ({"SLURM_JOBID": "77", "PMI_RANK": "2", "PMI_SIZE": "8"}, ("77", 2, -1, 8)),
        (TORCHRUN | {"STAGEWATCH_JOB_ID": "mine", "STAGEWATCH_RANK": "0"}, ("mine", 0, 1, 16)),
        # What started Ray on the node is not what started the worker.
        (SLURM | RAY, ("540", 0, -1, -1)),
        (SLURM | RAY | {"RANK": "9", "WORLD_SIZE": "16"}, ("540", 9, -1, 16)),
        (RAY | {"RAY_CLUSTER_NAME": "rl-7"}, ("rl-7-02000000", 0, -1, -1)),
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_SIZE": "4",
          "PBS_JOBID": "88.head"}, ("88.head", 3, 1, 4)),
        ({"PALS_RANKID": "6", "PALS_LOCAL_RANKID": "2", "PBS_JOBID": "9"}, ("9", 6, 2, -1)),
        ({"FLUX_JOB_ID": "f2", "FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "1",
          "FLUX_JOB_SIZE": "2"}, ("f2", 1, 1, 2)),
        (RENDEZVOUS, ("rendezvous-gpu-17-29500", 1, -1, 4)),
    ],
    ids=["slurm", "torchrun", "torchrun-under-srun", "mpi-under-srun", "pmi", "own-variables",
         "ray-under-srun", "ray-rank", "kuberay", "mvapich", "pals", "flux", "by-hand"],
)  # fmt: skip
def test_launchers(environ: dict[str, str], expected: tuple[str, int, int, int]) -> None:
    found = identify(environ)
    assert (found.job_id, found.rank, found.local_rank, found.world_size) == expected


@pytest.mark.parametrize(
    ("environ", "job_id", "rank"),
    [
        ({"HOSTNAME": "set-workers-0-3", "JOB_COMPLETION_INDEX": "3"}, "set-workers-0", 3),
        ({"HOSTNAME": "set-workers-0-3", "JOB_COMPLETION_INDEX": "3", "JOBSET_NAME": "set"},
         "set", 3),
        ({"HOSTNAME": "grpo-master-0", "RANK": "0", "WORLD_SIZE": "3"}, "grpo", 0),
        ({"HOSTNAME": "grpo-worker-1", "RANK": "2", "WORLD_SIZE": "3"}, "grpo", 2),
        ({"HOSTNAME": "sft-node-0-1", "JOB_COMPLETION_INDEX": "1", "RANK": "9"}, "sft", 9),
        ({"HOSTNAME": "a-1", "TORCHELASTIC_RUN_ID": "run-5", "RANK": "1"}, "run-5", 1),
        ({"TORCHELASTIC_RUN_ID": "9ee099df-12ab-4cde-8f01-23456789abcd", "RANK": "1"},
         "torchrun-9ee099df", 1),
        ({"HOSTNAME": "a-1", "STAGEWATCH_JOB_ID": "mine"}, "mine", 0),
    ],
    ids=["indexed-job", "jobset-named", "pytorchjob-master", "pytorchjob-worker",
         "trainjob", "bare-pod", "made-up", "told"],
)  # fmt: skip
def test_pods(environ: dict[str, str], job_id: str, rank: int) -> None:
    found = identify(POD | environ)
    assert (found.job_id, found.rank) == (job_id, rank)


def test_arguments_win_over_variables() -> None:
    found = identify(SLURM, role="rollout", job_id="9", rank=1, local_rank=0, world_size=2)
    assert (found.job_id, found.role, found.rank, found.world_size) == ("9", "rollout", 1, 2)


def test_without_a_launcher_the_shells_session_names_the_job() -> None:
    assert identify({}, session=4724).job_id == "session-4724"
    assert identify({}).job_id.startswith(f"session-{os.getsid(0)}")
    assert identify({}, session=0).job_id.startswith("session-0-"), "begun outside a container"
    default = {"TORCHELASTIC_RUN_ID": "none", "RANK": "1"}
    assert identify(default).job_id == identify({}).job_id


def test_one_node_of_several_is_not_named_by_its_own_launcher() -> None:
    files = "/tmp/torchelastic_ab1/none_{}/attempt_0/0/error.json"
    environ = RENDEZVOUS | {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2"}
    jobs = {
        identify(environ | {"TORCHELASTIC_ERROR_FILE": files.format(random)}).job_id
        for random in ("4v0x6g6z", "9k2bb_0z")
    }
    assert jobs == {"rendezvous-gpu-17-29500"}


def test_stagewatch_run_names_what_nothing_else_names() -> None:
    run = {"STAGEWATCH_RUN_ID": "run-7"}
    assert identify(run).job_id == "run-7"
    assert identify(run | {"SLURM_JOB_ID": "540"}).job_id == "540"
    assert identify(run | RENDEZVOUS).job_id == "rendezvous-gpu-17-29500"


@pytest.mark.parametrize(
    ("visible", "local_rank", "gpu"),
    [
        ("GPU-aaaa", "3", "GPU-aaaa"),
        ("GPU-aaaa,GPU-bbbb", "1", "GPU-bbbb"),
        ("MIG-aaaa,MIG-bbbb", "0", "MIG-aaaa"),
        ("0,1,2,3", "1", ""),  # an index is local to the job and says nothing
        ("GPU-aaaa,GPU-bbbb", "", ""),
        ("GPU-aaaa,GPU-bbbb", "7", ""),
    ],
)
def test_the_gpu_is_known_by_its_uuid_only(visible: str, local_rank: str, gpu: str) -> None:
    found = identify({"CUDA_VISIBLE_DEVICES": visible, "LOCAL_RANK": local_rank})
    assert found.gpu == gpu
