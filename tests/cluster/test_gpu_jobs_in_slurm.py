"""The shipped prolog and epilog, and the environment of real jobs, under a real slurmd."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stagewatch.gpu.jobs import from_cgroup
from stagewatch.slurm.node_jobs import CgroupJob, PrologJob, read_prolog
from stagewatch_lab.slurm.cluster import SlurmCluster
from stagewatch_lab.slurm.configuration import ClusterSpec, NodeSpec
from stagewatch_lab.slurm.keeping import Keeper
from stagewatch_lab.slurm.services import Munge

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"


class PrologLab:
    """One node of four GPUs whose slurmd runs the shipped scripts."""

    def __init__(self, keeper: Keeper, munge: Munge, directory: Path) -> None:
        self.jobs_dir = directory / "jobs"
        lines = (SCRIPTS / "stagewatch.conf").read_text().splitlines()
        settings = dict(
            line.split("=", 1) for line in lines if not line.startswith(("#", "Health"))
        )
        for name in ("prolog", "epilog"):
            (script := directory / name).write_text(
                f"#!/bin/sh\nSTAGEWATCH_JOBS_DIR={self.jobs_dir} exec {SCRIPTS}/{name}.sh\n"
            )
            script.chmod(0o755)
            settings[name.capitalize()] = str(script)
        self.loader = directory / "lib/python3/site-packages/stagewatch/client/loader"
        self.loader.mkdir(parents=True)
        (scripts := directory / "share" / "slurm").mkdir(parents=True)
        for setting, name in (("TaskProlog", "task-prolog.sh"), ("TaskEpilog", "task-epilog.sh")):
            (scripts / name).symlink_to(SCRIPTS / name)
            settings[setting] = str(scripts / name)
        spec = ClusterSpec(
            nodes=(NodeSpec(("p1",), gpus=(("h200", 4),)),),
            partitions=("all Nodes=p1 Default=YES DefMemPerCPU=100",),
            name="prolog",
            settings=tuple(settings.items()),
        )
        self.cluster = SlurmCluster(keeper, directory / "cluster", spec, munge)
        self.cluster.start()

    def written(self, job: str) -> PrologJob | None:
        return (read_prolog(self.jobs_dir) or {}).get(job)

    def environments(self, job: str) -> dict[int, dict[str, str]]:
        """Of the job's own processes on this machine, the programs it was given to run."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environ = process.environ()
                if process.name() == "sleep" and environ.get("SLURM_JOB_ID") == job:
                    found[process.pid] = environ
        return found


@pytest.fixture(scope="module")
def lab(keeper: Keeper, munge: Munge, tmp_path_factory: pytest.TempPathFactory) -> PrologLab:
    directory = tmp_path_factory.mktemp("prolog")
    for parent in (directory, *directory.parents[:2]):
        parent.chmod(parent.stat().st_mode | 0o055)  # slurmd checks that the scripts can be reached
    return PrologLab(keeper, munge, directory)


def test_prolog_writes_down_the_gpus_of_each_job_and_epilog_takes_them_back(lab: PrologLab) -> None:
    first = lab.cluster.submit("--gres=gpu:h200:1")
    lab.cluster.wait_job(first, "RUNNING")
    second = lab.cluster.submit("--gres=gpu:h200:2")
    lab.cluster.wait_job(second, "RUNNING")
    one = lab.cluster.wait(lambda: lab.written(first), "the first job to be written down")
    two = lab.cluster.wait(lambda: lab.written(second), "the second job to be written down")
    assert (len(one.minors), len(two.minors)) == (1, 2)
    assert not one.minors & two.minors
    assert one.minors | two.minors <= {0, 1, 2, 3}
    assert one.user == "root"
    lab.cluster.run("scancel", first, second)
    lab.cluster.wait(
        lambda: lab.written(first) is None and lab.written(second) is None, "both to be taken back"
    )
    assert read_prolog(lab.jobs_dir) == {}  # in use, and empty


def test_every_task_is_watched_and_keeps_its_own_path(lab: PrologLab) -> None:
    environ = ["--export=ALL,PYTHONPATH=/home/mine"]
    job = lab.cluster.submit(*environ)
    found = lab.cluster.wait(lambda: lab.environments(job), "the job to run")
    assert {each["PYTHONPATH"] for each in found.values()} == {f"{lab.loader}:/home/mine"}
    lab.cluster.run("scancel", job)


def test_the_lines_for_slurm_conf_name_the_scripts_that_are_installed() -> None:
    text = (SCRIPTS / "stagewatch.conf").read_text()
    named = re.findall(r"=/opt/stagewatch/share/slurm/(.+)", text)
    assert sorted(named) == sorted(file.name for file in SCRIPTS.glob("*.sh"))


def test_slurm_takes_the_line_that_includes_them(lab: PrologLab, tmp_path: Path) -> None:
    """Without a controller: what asks for one has read the whole configuration."""
    lines = [
        "ClusterName=none",
        "SlurmctldHost=localhost",
        "NodeName=n1",
        "PartitionName=p Nodes=n1",
    ]
    lines += [f"include {SCRIPTS}/stagewatch.conf", ""]
    (file := tmp_path / "slurm.conf").write_text("\n".join(lines))
    done = subprocess.run(["scontrol", "ping"], env=os.environ | {"SLURM_CONF": str(file)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert "is DOWN" in done.stdout, done.stderr


def test_environment_of_a_real_step_tells_the_same_gpus(lab: PrologLab) -> None:
    blocker = lab.cluster.submit("--gres=gpu:h200:1")
    lab.cluster.wait_job(blocker, "RUNNING")
    job = lab.cluster.submit("--gres=gpu:h200:2", script="srun sleep 600")
    written = lab.cluster.wait(lambda: lab.written(job), "the job to be written down")
    step = lab.cluster.wait(
        lambda: next(
            (
                (pid, environ)
                for pid, environ in lab.environments(job).items()
                if "SLURM_STEP_GPUS" in environ
            ),
            None,
        ),
        "its step to run",
    )
    pid, environ = step

    class OneProcess(CgroupJob):
        """The cgroup the job would have had: this cluster runs without."""

        def pids(self) -> Iterator[tuple[str, int]]:
            yield "0", pid

    found = from_cgroup(OneProcess(job, "", Path("/nowhere")), lambda _: {pid: environ})
    assert found.minors == set(written.minors), environ
    lab.cluster.run("scancel", job, blocker)


def health_check(lab: PrologLab, directory: Path, verdict: str, status: int) -> None:
    """Run the shipped HealthCheckProgram on a node of which `stagewatch check` says this."""
    (command := directory / "stagewatch").write_text(
        f"#!/bin/sh\necho '{verdict}'\nexit {status}\n"
    )
    command.chmod(0o755)
    lab.cluster.run(
        str(SCRIPTS / "health-check.sh"),
        env={"SLURMD_NODENAME": "p1", "STAGEWATCH_PATH": f"{directory}:{os.environ['PATH']}"},
    )


def reason(lab: PrologLab) -> str:
    shown = lab.cluster.run("scontrol", "-o", "show", "node", "p1")
    return shown.partition(" Reason=")[2].partition(" [")[0]


def test_health_check_drains_a_node_once_with_the_reason(lab: PrologLab, tmp_path: Path) -> None:
    lab.cluster.empty()
    health_check(lab, tmp_path, "ok: 4 GPUs", 0)
    health_check(lab, tmp_path, "warn: the clock is not synchronised", 1)
    assert "DRAIN" not in lab.cluster.state("p1")
    health_check(lab, tmp_path, "drain: the driver has lost GPU 3", 2)
    lab.cluster.wait(lambda: "DRAIN" in lab.cluster.state("p1"), "the node to be drained")
    assert reason(lab) == "stagewatch: drain: the driver has lost GPU 3"
    health_check(lab, tmp_path, "drain: another reason", 2)
    assert reason(lab) == "stagewatch: drain: the driver has lost GPU 3"
    lab.cluster.run("scontrol", "update", "nodename=p1", "state=resume")
    lab.cluster.wait(lambda: lab.cluster.state("p1") == "IDLE", "the node to be back")
