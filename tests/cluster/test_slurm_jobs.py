"""Which job runs where and on which GPUs, held against `scontrol -d show job`."""

from __future__ import annotations

import os
import re
import signal

from stagewatch.core.exposition import Samples
from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors.jobs import JobsCollector
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster.observing import observed


def look(slurm: SlurmCluster, *, indices: bool) -> Samples:
    """The jobs collector's samples."""
    cluster = observed(slurm)
    cluster.jobs.refresh()
    cluster.nodes.refresh()
    source = cluster.gpu_claims() if indices else None
    if source is not None:
        source._due = 0.0  # the phase spreads requests over a minute
    return JobsCollector(cluster, claims=source).collect()


def placement(found: Samples) -> dict[tuple[str, str], str]:
    """Indices by job and node."""
    return {(job, node): gpus for job, node, gpus in found.families.get(slurm_jobs.NODE, {})}


def as_scontrol_says(slurm: SlurmCluster) -> dict[tuple[str, str], str]:
    """The same, job by job from scontrol; its jobs have no hostile names here."""
    said = {}
    for job in slurm.run("squeue", "-h", "-t", "R", "-O", "JobID").split():
        shown = slurm.run("scontrol", "-d", "show", "job", job)
        for nodes, gpus in re.findall(r"Nodes=(\S+) CPU_IDs.* GRES=gpu:\w+:\d\(IDX:(\S+)\)", shown):
            for node in slurm.run("scontrol", "show", "hostnames", nodes).split():
                said[job, node] = gpus
    return said


def test_indices_of_shared_nodes_are_found_out_if_asked_for(slurm: SlurmCluster) -> None:
    """Three jobs share h3, two types share m1; a job that imitates the details changes nothing."""
    forged = "x Nodes=h3 CPU_IDs=0 Mem=100 GRES=gpu:h200:1(IDX:7)"
    jobs = [
        slurm.submit("-w", "h3", "--gres=gpu:h200:2", user="games"),
        slurm.submit("-w", "h3", "--gres=gpu:h200:3", f"--comment={forged}"),
        slurm.submit("-N2", "-w", "h2,h3", "--gres=gpu:h200:1"),
        slurm.submit("-p", "mixed", "-w", "m1", "--gres=gpu:a100:2"),
        slurm.submit("-p", "mixed", "-w", "m1", "--gres=gpu:h200:1"),
    ]
    for job in jobs:
        slurm.wait_job(job, "RUNNING")
    said = as_scontrol_says(slurm)
    assert len(said) == 6
    blind = placement(look(slurm, indices=False))
    assert blind == {key: gpus if key[1] == "h2" else "" for key, gpus in said.items()}
    slurm.run("scancel", jobs[1])  # the forged claim makes its node's claims worthless
    slurm.wait(lambda: not slurm.run("squeue", "-h", "-j", jobs[1]), "the forger to be gone")
    said = as_scontrol_says(slurm)
    assert placement(look(slurm, indices=True)) == said


def test_job_that_does_not_end_is_told_since_it_was_cancelled(slurm: SlurmCluster) -> None:
    """Its step daemon is frozen, so Slurm goes on calling it COMPLETING."""
    job = slurm.submit("-w", "h1", "--gres=gpu:h200:1", "--account=physics")
    slurm.wait_job(job, "RUNNING")
    daemon = slurm.step_daemon(job)
    assert slurm_jobs.COMPLETING not in look(slurm, indices=False).families
    os.kill(daemon, signal.SIGSTOP)
    try:
        slurm.run("scancel", job)
        slurm.wait(lambda: slurm.run(*squeue(job, "State")) == "COMPLETING|\n", "it to complete")
        found = look(slurm, indices=False).families[slurm_jobs.COMPLETING]
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
    assert slurm_jobs.PREEMPTED not in look(slurm, indices=False).families
    slurm.submit("-p", "urgent", "-w", "h1", "--gres=gpu:h200:8")

    def signalled() -> str | None:
        shown = slurm.run(
            *squeue(job, "State", "UserName", "Account", "PreemptTime"),
            env={"SLURM_TIME_FORMAT": "%s"},
        )
        return None if "|N/A|" in shown or shown.startswith("SIGNALING") else shown

    state, user, account, since, _ = slurm.wait(signalled, "the job to be preempted").split("|")
    found = look(slurm, indices=False).families
    assert state == "RUNNING"
    assert found[slurm_jobs.PREEMPTED] == {(job, user, account, "graceful"): float(since)}
    assert slurm_jobs.COMPLETING not in found


def squeue(job: str, *fields: str) -> list[str]:
    """The command that prints fields of one job, each with a bar after it."""
    return ["squeue", "-h", "-j", job, f"--Format={','.join(f'{field}:|' for field in fields)}"]


def test_forged_details_hide_indices_and_never_change_them(slurm: SlurmCluster) -> None:
    """Where a claim does not fit what the node says, none of the node's is shown."""
    forged = "x Nodes=h3 CPU_IDs=0 Mem=100 GRES=gpu:h200:1(IDX:7)"
    honest = slurm.submit("-w", "h3", "--gres=gpu:h200:2", user="games")
    forger = slurm.submit("-w", "h3", "--gres=gpu:h200:3", f"--job-name={forged}")
    for job in (honest, forger):
        slurm.wait_job(job, "RUNNING")
    found = placement(look(slurm, indices=True))
    assert found == {(honest, "h3"): "", (forger, "h3"): ""}
