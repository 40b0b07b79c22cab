"""The shipped TaskEpilog under a real slurmd: one record a job, of what its log tells."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "task-epilog.sh"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


class DiedLab:
    """A node whose slurmd runs the TaskEpilog, installed beside a `stagewatch` of this checkout."""

    def __init__(self, keeper: Keeper, munge: Munge, directory: Path) -> None:
        self.directory = directory
        (script := directory / "share" / "slurm" / "task-epilog.sh").parent.mkdir(parents=True)
        script.symlink_to(SCRIPT)
        (command := directory / "bin" / "stagewatch").parent.mkdir()
        paths = ":".join(sys.path)
        command.write_text(
            f"#!/bin/sh\necho asked >> {directory}/asked\n"
            f"PYTHONPATH='{paths}' exec {sys.executable} -m stagewatch.cli \"$@\"\n"
        )
        command.chmod(0o755)
        spec = ClusterSpec(
            nodes=(NodeSpec(("p1",)),),
            partitions=("all Nodes=p1 Default=YES DefMemPerCPU=100",),
            name="died",
            settings=(("TaskEpilog", str(script)),),
        )
        self.cluster = SlurmCluster(keeper, directory / "cluster", spec, munge)
        self.cluster.start()

    def ended(self, name: str, script: str, *options: str) -> Path:
        """The record of a job that has ended."""
        (file := self.directory / f"{name}.sh").write_text(f"#!/bin/sh\n{script}\n")
        log = self.directory / f"{name}.log"
        job = self.cluster.run(
            "sbatch", "--parsable", f"--output={log}", "--job-name= StdOut=/etc/shadow", *options,
            str(file),
        ).strip()  # fmt: skip
        self.cluster.wait(
            lambda: (
                "EndTime" in self.cluster.run("scontrol", "show", "job", job)
                and not self.cluster.run("squeue", "--noheader", "--jobs", job)
            ),
            "the job to be over",
        )
        return log.with_name(f"{log.name}.died.json")


@pytest.fixture(scope="module")
def lab(keeper: Keeper, munge: Munge, tmp_path_factory: pytest.TempPathFactory) -> DiedLab:
    directory = tmp_path_factory.mktemp("died")
    for parent in (directory, *directory.parents[:2]):
        parent.chmod(parent.stat().st_mode | 0o055)  # slurmd checks that the scripts can be reached
    return DiedLab(keeper, munge, directory)


def test_a_job_that_died_has_one_record_beside_its_log(lab: DiedLab) -> None:
    steps = f"srun true\nsrun true\necho '{OOM}' >&2\nexit 1"
    record = lab.ended("died", steps, "--export=ALL,STAGEWATCH_DIED=1")
    told = json.loads(record.read_text())
    lines = (lab.directory / "died.log").read_text().splitlines()  # a busy srun writes as well
    assert (told["class"], told["place"]) == ("gpu_memory", f"died.log:{lines.index(OOM) + 1}")
    assert (lab.directory / "asked").read_text().count("asked") == 1, "not for its steps"


def test_a_job_whose_log_tells_of_no_death_has_none(lab: DiedLab) -> None:
    assert not lab.ended("well", "echo step 1", "--export=ALL,STAGEWATCH_DIED=1").exists()


def test_nobody_is_asked_who_did_not_want_it(lab: DiedLab) -> None:
    asked = lab.directory / "asked"
    before = asked.read_text() if asked.exists() else ""
    assert not lab.ended("quiet", f"echo '{OOM}'; exit 1").exists()
    assert (asked.read_text() if asked.exists() else "") == before
