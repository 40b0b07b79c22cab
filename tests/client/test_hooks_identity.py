"""Who a process is where Ray, MPI or Kubernetes started it."""

from __future__ import annotations

import pytest

from stagewatch.identity import identify

SRUN = {"SLURM_JOB_ID": "540", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
RAY = {"RAY_JOB_ID": "02000000"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        # What started Ray on the node is not what started the worker.
        (SRUN | RAY, ("540", 0, -1, -1)),
        (SRUN | RAY | {"RANK": "9", "WORLD_SIZE": "16"}, ("540", 9, -1, 16)),
        (RAY | {"RAY_CLUSTER_NAME": "rl-7"}, ("rl-7-02000000", 0, -1, -1)),
        (RAY, ("02000000", 0, -1, -1)),
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_SIZE": "4",
          "PBS_JOBID": "88.head"}, ("88.head", 3, 1, 4)),
        ({"PALS_RANKID": "6", "PALS_LOCAL_RANKID": "2", "PBS_JOBID": "9"}, ("9", 6, 2, -1)),
        ({"FLUX_JOB_ID": "f2", "FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "1",
          "FLUX_JOB_SIZE": "2"}, ("f2", 1, 1, 2)),
    ],
    ids=["ray-under-srun", "ray-rank", "kuberay", "ray", "mvapich", "pals", "flux"],
)  # fmt: skip
def test_launchers(environ: dict[str, str], expected: tuple[str, int, int, int]) -> None:
    found = identify(environ)
    assert (found.job_id, found.rank, found.local_rank, found.world_size) == expected


@pytest.mark.parametrize(
    ("environ", "job_id", "rank"),
    [
        ({"HOSTNAME": "llama-7", "JOB_COMPLETION_INDEX": "7"}, "llama", 7),
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
    ids=["indexed-job", "jobset", "jobset-named", "pytorchjob-master", "pytorchjob-worker",
         "trainjob", "bare-pod", "made-up", "told"],
)  # fmt: skip
def test_pods(environ: dict[str, str], job_id: str, rank: int) -> None:
    found = identify(POD | environ)
    assert (found.job_id, found.rank) == (job_id, rank)


def test_torchruns_default_run_id_names_no_job() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "none", "RANK": "1"}
    assert identify(environ).job_id == identify({}).job_id
