"""Which job runs where and on which GPUs, held against `scontrol -d show job`."""

from __future__ import annotations

import os
import re
import signal

from stagewatch.core.exposition import Samples
from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors.jobs import JobsCollector
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster.observing import observed, step_daemon


def look(slurm: SlurmCluster) -> Samples:
    """The jobs collector's samples."""
    cluster = observed(slurm)
    cluster.jobs.refresh()
    cluster.nodes.refresh()
    return JobsCollector(cluster).collect()


def as_scontrol_says(slurm: SlurmCluster) -> dict[tuple[str, str], str]:
    """Indices by job and node, job by job from scontrol; its jobs have no hostile names here."""
    said = {}
    for job in slurm.run("squeue", "-h", "-t", "R", "-O", "JobID").split():
        shown = slurm.run("scontrol", "-d", "show", "job", job)
        for nodes, gpus in re.findall(r"Nodes=(\S+) CPU_IDs.* GRES=gpu:\w+:\d\(IDX:(\S+)\)", shown):
            for node in slurm.run("scontrol", "show", "hostnames", nodes).split():
                said[job, node] = gpus
    return said


def test_indices_are_known_of_the_nodes_that_no_other_job_uses(slurm: SlurmCluster) -> None:
    jobs = [
        slurm.submit("-w", "h3", "--gres=gpu:h200:2", user="games"),
        slurm.submit("-N2", "-w", "h2,h3", "--gres=gpu:h200:1"),
    ]
    for job in jobs:
        slurm.wait_job(job, "RUNNING")
    said = as_scontrol_says(slurm)
    assert len(said) == 3
    found = {(job, node): gpus for job, node, gpus in look(slurm).families[slurm_jobs.NODE]}
    assert found == {key: gpus if key[1] == "h2" else "" for key, gpus in said.items()}


def test_job_that_does_not_end_is_told_since_it_was_cancelled(slurm: SlurmCluster) -> None:
    """Its step daemon is frozen, so Slurm goes on calling it COMPLETING."""
    job = slurm.submit("-w", "h1", "--gres=gpu:h200:1", "--account=physics")
    slurm.wait_job(job, "RUNNING")
    daemon = step_daemon(slurm, job)
    assert slurm_jobs.COMPLETING not in look(slurm).families
    os.kill(daemon, signal.SIGSTOP)
    try:
        slurm.run("scancel", job)
        slurm.wait(lambda: slurm.run(*squeue(job, "State")) == "COMPLETING|\n", "it to complete")
        found = look(slurm).families[slurm_jobs.COMPLETING]
        shown = slurm.run(
            *squeue(job, "UserName", "Account", "EndTime"), env={"SLURM_TIME_FORMAT": "%s"}
        )
    finally:
        os.kill(daemon, signal.SIGCONT)
    user, account, end, _ = shown.split("|")
    assert found == {(job, user, account, "gpu"): float(end)}


def test_preempted_job_is_told_from_the_signal_on_while_it_uses_its_grace_time(
    slurm: SlurmCluster,
) -> None:
    """It stays RUNNING for as long as its partition's GraceTime, and saves meanwhile."""
    job = slurm.submit(
        *("-p", "graceful", "-w", "h1", "--gres=gpu:h200:8", "--account=physics"),
        script="trap : TERM; while true; do sleep 1; done",
    )
    slurm.wait_job(job, "RUNNING")
    assert slurm_jobs.PREEMPTED not in look(slurm).families
    slurm.submit("-p", "urgent", "-w", "h1", "--gres=gpu:h200:8")

    def signalled() -> str | None:
        shown = slurm.run(
            *squeue(job, "State", "UserName", "Account", "PreemptTime"),
            env={"SLURM_TIME_FORMAT": "%s"},
        )
        return None if "|N/A|" in shown or shown.startswith("SIGNALING") else shown

    state, user, account, since, _ = slurm.wait(signalled, "the job to be preempted").split("|")
    found = look(slurm).families
    assert state == "RUNNING"
    assert found[slurm_jobs.PREEMPTED] == {(job, user, account, "graceful"): float(since)}
    assert slurm_jobs.COMPLETING not in found


def squeue(job: str, *fields: str) -> list[str]:
    """The command that prints fields of one job, each with a bar after it."""
    return ["squeue", "-h", "-j", job, f"--Format={','.join(f'{field}:|' for field in fields)}"]
