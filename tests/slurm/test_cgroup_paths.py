"""Job ids out of cgroup paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.slurm.cgroup_paths import SlurmCgroup, parse_slurm_cgroup


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
