"""Every number about queue and nodes equals a second, independent reading of a real Slurm."""

from __future__ import annotations

import signal
from collections.abc import Callable

from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch_lab.slurm.cluster import SlurmCluster
from tests.cluster import independent
from tests.cluster.observing import cli, numbers, settled

AGES = ("slurm_pending_age_seconds",)
WHY = ("slurm_node_unavailable_info", "slurm_node_unavailable_since_timestamp_seconds")


def check(slurm: SlurmCluster, step: str) -> None:
    """Compare everything, and hold the invariants."""
    client = cli(slurm)
    ours, theirs = settled(
        lambda: numbers(slurm_queue.measure(client.jobs(30).items, now=0, top=50), *AGES),
        lambda: independent.queue(slurm),
    )
    assert ours == theirs, f"after the step {step}"
    ours, theirs = settled(
        lambda: numbers(slurm_nodes.measure(client.nodes(30).items), *WHY),
        lambda: independent.nodes(slurm),
    )
    assert ours == theirs, f"after the step {step}"
    total = sum(value for key, value in ours.items() if key[0] == "slurm_cluster_nodes")
    assert total == len(slurm.real_nodes)
    for key, configured in ours.items():
        if key[0] == "slurm_node_gpus":
            assert configured > 0


def gpus_add_up(slurm: SlurmCluster) -> None:
    """Allocated, free, drained and down GPUs of a type make what is configured."""
    found = numbers(slurm_nodes.measure(cli(slurm).nodes(30).items))
    for kind in ("h200", "a100"):
        by_state = sum(v for k, v in found.items() if k[:2] == ("slurm_cluster_gpus", kind))
        configured = sum(v for k, v in found.items() if k[0] == "slurm_node_gpus" and k[2] == kind)
        assert by_state == configured == {"h200": 26, "a100": 2}[kind]


def test_every_step_of_a_busy_day_is_counted_as_slurm_counts_it(slurm: SlurmCluster) -> None:
    """Submissions, arrays, dependencies, holds, several partitions, drain, death and return."""
    jobs: dict[str, str] = {}

    def submit() -> None:
        jobs["one"] = slurm.submit("--gres=gpu:h200:2", user="daemon")
        jobs["two"] = slurm.submit("-p", "mixed", "--gpus=3", "-w", "h3", "--account=physics")
        slurm.wait_job(jobs["one"], "RUNNING")
        slurm.wait_job(jobs["two"], "RUNNING")

    def array() -> None:
        jobs["array"] = slurm.submit("--gres=gpu:h200:4", "--array=0-20:2,31,33%3", user="games")
        slurm.wait(
            lambda: slurm.run("squeue", "-h", "-t", "R", "-j", jobs["array"]).count("\n") == 3,
            "three tasks of the array to run",
        )

    def waiting_for_others() -> None:
        jobs["after"] = slurm.submit(f"--dependency=afterok:{jobs['one']}", "--gpus=1")
        jobs["held"] = slurm.submit("--hold", "-p", "mixed", "--gres=gpu:a100:2")
        jobs["later"] = slurm.submit("--begin=now+2hours")
        jobs["both"] = slurm.submit("-p", "gpu,mixed", "--gpus-per-node=8", "-N", "2")
        slurm.wait_job(jobs["both"], "PENDING")

    def hostile_names() -> None:
        for name in (
            "a|b",
            "x\ny JobState=RUNNING",
            'q"uo\\te',
            "\x1e\x1f",
            b"\xff\xfe".decode(errors="surrogateescape"),
        ):
            slurm.submit("--hold", f"--job-name={name}", f"--comment={name}")

    def cancel() -> None:
        slurm.run("scancel", f"{jobs['array']}_[20,31]")
        slurm.run("scancel", jobs["one"])
        slurm.wait_job(jobs["one"], "CANCELLED")
        slurm.wait_job(jobs["after"], "PENDING")

    def drain() -> None:
        slurm.run("scontrol", "update", "nodename=h2", "state=drain", "reason=Xid 79 [x@y] = bad")
        slurm.wait(lambda: "DRAIN" in slurm.state("h2"), "h2 to drain")

    def requeue_and_hold() -> None:
        slurm.run("scontrol", "requeuehold", jobs["two"])
        slurm.wait_job(jobs["two"], "PENDING", "REQUEUE_HOLD")

    def reserve() -> None:
        slurm.run(
            *("scontrol", "create", "reservation", "reservationname=maintenance"),
            *("starttime=now", "duration=60", "nodes=m1", "users=root", "flags=maint,ignore_jobs"),
        )
        slurm.wait(lambda: "MAINT" in slurm.state("m1"), "m1 to be in maintenance")

    def unreserve() -> None:
        slurm.run("scontrol", "delete", "reservationname=maintenance")
        slurm.wait(lambda: "MAINT" not in slurm.state("m1"), "m1 to leave maintenance")

    def die() -> None:
        slurm.daemons.stop("slurmd-h1", signal.SIGKILL)
        slurm.wait(lambda: "DOWN" in slurm.state("h1"), "h1 to be down")

    def return_to_service() -> None:
        slurm.start_slurmd("h1")
        slurm.run("scontrol", "update", "nodename=h2", "state=resume")
        slurm.wait(lambda: "DOWN" not in slurm.state("h1"), "h1 to be back")

    steps: tuple[Callable[[], None], ...] = (
        submit,
        array,
        waiting_for_others,
        hostile_names,
        cancel,
        drain,
        requeue_and_hold,
        reserve,
        unreserve,
        die,
        return_to_service,
        slurm.empty,
    )
    for step in steps:
        step()
        check(slurm, step.__name__)
        gpus_add_up(slurm)


def test_drained_node_free_gpus_are_not_schedulable(slurm: SlurmCluster) -> None:
    """The half of a draining node that is idle is neither free nor allocated."""
    job = slurm.submit("--gres=gpu:h200:3", "-w", "h2")
    slurm.wait_job(job, "RUNNING")
    slurm.run("scontrol", "update", "nodename=h2", "state=drain", "reason=NVLink errors [GPU 3]")
    found = slurm_nodes.measure(cli(slurm).nodes(30).items)
    assert found.value(slurm_nodes.GPUS, "gpu", "h200", "allocated") == 3
    assert found.value(slurm_nodes.GPUS, "gpu", "h200", "free_drained") == 5
    assert found.value(slurm_nodes.GPUS, "gpu", "h200", "free") == 16
    labels = ("h2", "drain", "gpu", "NVLink errors [GPU 3]", "root")
    assert found.value(slurm_nodes.UNAVAILABLE, *labels) == 1
    since = slurm.run("sinfo", "-h", "-n", "h2", "-O", "Timestamp", env={"SLURM_TIME_FORMAT": "%s"})
    assert found.value(slurm_nodes.SINCE, "h2", "drain") == int(since.split()[0])
