"""Job, rank and sizes, from what launchers set."""

from __future__ import annotations

import os

import pytest

from stagewatch.identity import identify

SLURM = {
    "SLURM_JOB_ID": "540",
    "SLURM_PROCID": "13",
    "SLURM_LOCALID": "5",
    "SLURM_NTASKS": "64",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "8c1f",
    "RANK": "9",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "16",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
}
UNDER_SRUN = SLURM | {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (SLURM, ("540", 13, 5, 64)),
        (TORCHRUN, ("8c1f", 9, 1, 16)),
        (UNDER_SRUN | TORCHRUN, ("540", 9, 1, 16)),  # SLURM_PROCID counts nodes here
        (UNDER_SRUN | OPEN_MPI, ("540", 3, 3, 4)),
        ({"SLURM_JOBID": "77", "PMI_RANK": "2", "PMI_SIZE": "8"}, ("77", 2, -1, 8)),
        (TORCHRUN | {"STAGEWATCH_JOB_ID": "mine", "STAGEWATCH_RANK": "0"}, ("mine", 0, 1, 16)),
    ],
    ids=["slurm", "torchrun", "torchrun-under-srun", "mpi-under-srun", "pmi", "own-variables"],
)
def test_launchers(environ: dict[str, str], expected: tuple[str, int, int, int]) -> None:
    found = identify(environ)
    assert (found.job_id, found.rank, found.local_rank, found.world_size) == expected


def test_arguments_win_over_variables() -> None:
    found = identify(SLURM, role="rollout", job_id="9", rank=1, local_rank=0, world_size=2)
    assert (found.job_id, found.role, found.rank, found.world_size) == ("9", "rollout", 1, 2)


def test_without_a_launcher_the_shells_session_names_the_job() -> None:
    assert identify({}, session=4724).job_id == "session-4724"
    assert identify({}).job_id.startswith(f"session-{os.getsid(0)}")


@pytest.mark.parametrize(
    ("visible", "local_rank", "gpu"),
    [
        ("GPU-aaaa", "3", "GPU-aaaa"),
        ("GPU-aaaa,GPU-bbbb", "1", "GPU-bbbb"),
        ("MIG-aaaa,MIG-bbbb", "0", "MIG-aaaa"),
        ("0,1,2,3", "1", ""),  # an index is local to the job and says nothing
        ("GPU-aaaa,GPU-bbbb", "", ""),
        ("GPU-aaaa,GPU-bbbb", "7", ""),
        ("", "0", ""),
    ],
)
def test_the_gpu_is_known_by_its_uuid_only(visible: str, local_rank: str, gpu: str) -> None:
    found = identify({"CUDA_VISIBLE_DEVICES": visible, "LOCAL_RANK": local_rank})
    assert found.gpu == gpu
