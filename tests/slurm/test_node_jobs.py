"""What a node tells of its Slurm jobs: ids out of cgroup paths, and what the prolog left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm.node_jobs import SlurmCgroup, parse_slurm_cgroup, read_prolog


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/slurm/uid_1000/job_540/step_0/task_3", SlurmCgroup("540", "", "0")),
        ("/slurm_node01/uid_1000/job_540/step_batch", SlurmCgroup("540", "", "batch")),
        (
            "/system.slice/slurmstepd.scope/job_540/step_extern/user/task_0",
            SlurmCgroup("540", "", "extern"),
        ),
        ("/system.slice/node01_slurmstepd.scope/job_540", SlurmCgroup("540", "", "")),
        (
            "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0",
            SlurmCgroup("", "s5K1KKYAYG5D00", "0"),
        ),
        ("/user.slice/user-1000.slice/job_540", None),
        ("/system.slice/slurmstepd.scope/system", None),
        ("/system.slice/slurmd.service", None),
        ("/", None),
    ],
)
def test_paths_of_every_layout(path: str, expected: SlurmCgroup | None) -> None:
    assert parse_slurm_cgroup(path) == expected


@given(st.text())
def test_any_path_is_answered(path: str) -> None:
    found = parse_slurm_cgroup("/slurm/" + path)
    assert found is None or bool(found.job_id) != bool(found.sluid)


def test_files_that_others_planted_are_not_read(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("user=root\ngpus=0\n")
    (jobs / "1").symlink_to(secret)
    os.mkfifo(jobs / "2")
    (jobs / "3").mkdir()
    (jobs / "4").write_bytes(b"\xff=\x00\ngpus=9999999,0-99999999\nuser=" + b"x" * 9000)
    found = read_prolog(jobs)
    assert found is not None
    assert set(found) == {"4"}
    if os.geteuid() == 0:
        os.chown(jobs / "4", 12345, 12345)
        assert read_prolog(jobs) == {}
