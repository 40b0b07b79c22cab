"""Device programs of cgroups, asked here and asked by a real kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.gpu.bpf import device_programs
from stagewatch.gpu.device_programs import NotUnderstood, ask
from stagewatch.slurm.cgroups import SlurmCgroups
from tests.gpu.bpf_code import (
    BLOCK,
    DO_NOT_CARE,
    Rule,
    answer,
    confined,
    instruction,
    real_cgroup,
    slurm,
    systemd,
)

JOB_OF_TWO = slurm([Rule(195, minor, allow=minor in (1, 2)) for minor in range(4)])
STRANGE = {
    "helper": instruction(0x85, constant=6) + answer(True),
    "map": instruction(0x18, 1, 1, constant=3) + instruction(0) + answer(True),
    "stack": instruction(0x61, 2, 10, -8) + answer(True),
    "outside of the question": instruction(0x61, 2, 1, 12) + answer(True),
    "byte swap": instruction(0xDC, 1, constant=32) + answer(True),
    "endless": instruction(0x05, offset=-1),
    "no end": instruction(0xB7),
    "jump out": instruction(0x05, offset=9),
    "empty": b"",
}
TRY = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
for path in sys.argv[2:]:
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        print(error.errno)
"""


def allowed(*programs: bytes) -> set[int]:
    return {minor for minor in range(8) if ask(programs, 195, minor).allowed}


def test_program_that_lets_through_what_it_does_not_name() -> None:
    assert allowed(JOB_OF_TWO) == {1, 2, 4, 5, 6, 7}
    assert [ask([JOB_OF_TWO], 195, minor).named for minor in (0, 1, 3, 4)] == [1, 1, 1, 0]
    assert not ask([JOB_OF_TWO], 196, 0).named, "another driver's device"


def test_program_that_refuses_what_it_does_not_name() -> None:
    assert allowed(systemd([Rule(1, 3), Rule(195, 255), Rule(195, 2)])) == {2}
    assert allowed(systemd([Rule(195), Rule(8, kind=BLOCK)])) == set(range(8))


def test_every_program_has_to_allow_it() -> None:
    assert allowed(JOB_OF_TWO, systemd([Rule(195, 0), Rule(195, 1)])) == {1}
    assert allowed() == set(range(8))


rules = st.builds(
    Rule,
    major=st.sampled_from([1, 2, 195, 196]),
    minor=st.sampled_from([DO_NOT_CARE, 0, 1, 2, 3, 195, 255]),
    allow=st.booleans(),
    kind=st.sampled_from([BLOCK, 2]),
)


@given(st.lists(rules, max_size=12), st.booleans(), st.sampled_from([0, 1, 2, 195]))
def test_first_rule_that_fits_decides(found: list[Rule], otherwise: bool, minor: int) -> None:
    expected = next((rule.allow for rule in found if rule.fits(195, minor)), otherwise)
    assert ask([slurm(found, otherwise=otherwise)], 195, minor).allowed == expected


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_not_understood_is_not_guessed(what: str) -> None:
    with pytest.raises(NotUnderstood):
        ask([STRANGE[what]], 195, 0)


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=20).map(b"".join))
def test_any_program_ends_in_an_answer_or_is_not_understood(program: bytes) -> None:
    with contextlib.suppress(NotUnderstood):
        ask([program], 195, 0)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """One that looks like the root of a node's cgroups."""
    with real_cgroup() as path:
        yield path


@pytest.mark.parametrize(
    "program",
    [
        JOB_OF_TWO,
        systemd([Rule(1, 3), Rule(195, 2), Rule(195, 3)]),
        slurm([Rule(195, 1, allow=False)]),
    ],
    ids=["slurm", "systemd", "one refused"],
)
def test_kernel_and_this_reading_of_its_program_agree(
    cgroup: Path, tmp_path: Path, program: bytes
) -> None:
    """The kernel refuses before it looks for a driver, of which there is none."""
    confined(cgroup, program)
    (below := cgroup / "step_0").mkdir()
    devices = [tmp_path / f"nvidia{minor}" for minor in range(4)]
    for minor, device in enumerate(devices):
        os.mknod(device, 0o020600, os.makedev(195, minor))
    tried = subprocess.run(
        [sys.executable, "-c", TRY, below, *devices], capture_output=True, text=True, check=True
    )
    assert set(tried.stdout.split()) <= {str(errno.EPERM), str(errno.ENXIO)}
    kernel = [line == str(errno.ENXIO) for line in tried.stdout.split()]
    assert len(kernel) == 4
    assert device_programs(below) == [program]
    assert [ask(device_programs(below), 195, minor).allowed for minor in range(4)] == kernel


def test_jobs_of_a_real_kernel_tell_their_gpus(cgroup: Path) -> None:
    scope = cgroup / "system.slice" / "slurmstepd.scope"
    (scope / "job_8").mkdir(parents=True)
    (scope / "job_9").mkdir()
    (scope / "job_10").mkdir()
    confined(scope / "job_8", JOB_OF_TWO)
    confined(scope / "job_10", slurm([Rule(195, minor) for minor in range(4)]))
    jobs = {job.job_id: job.minors() for job in SlurmCgroups(cgroup).jobs() or []}
    assert jobs == {"8": {1, 2}, "9": None, "10": {0, 1, 2, 3}}


def test_without_privilege_nothing_is_told(cgroup: Path) -> None:
    job = cgroup / "system.slice" / "slurmstepd.scope" / "job_8"
    job.mkdir(parents=True)
    confined(job, JOB_OF_TWO)
    code = (
        "import os, sys, pathlib\n"
        "from stagewatch.slurm.cgroups import SlurmCgroups\n"
        "os.setuid(65534)\n"
        "print([job.minors() for job in SlurmCgroups(pathlib.Path(sys.argv[1])).jobs()])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, cgroup], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[None]"


def test_no_cgroup_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        device_programs(tmp_path)
