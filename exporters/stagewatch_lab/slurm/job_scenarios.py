"""What happens to jobs: a rank dies, a job cannot start, a job never gets past its start."""

from __future__ import annotations

import os
import signal

from stagewatch.prometheus.selectors import select
from stagewatch_lab.slurm.lab import GPUS, NODES, TRY_AGAIN
from stagewatch_lab.slurm.phases import job_quiet, job_resumed
from stagewatch_lab.slurm.story import Story

RANK = "3"
ENDED = "slurm_jobs_ended_total"
REQUEUES = "slurm_job_requeues_total"


def process_killed(story: Story) -> None:
    """One rank gets SIGKILL, and the job requeues itself."""
    job = story.train()
    before = story.counter(REQUEUES), story.counter(ENDED, state="REQUEUED")
    info = select("rl_rank_info", job_id=job, role="train", rank=RANK)
    (victim,) = story.wait(info, "the rank")
    node, pid = victim.labels["node"], int(victim.labels["pid"])
    story.inject("process_kill", lambda: os.kill(pid, signal.SIGKILL), node=node, rank=RANK)
    fired = story.fires("JobStalled", job_id=job, evidence="process_gone")
    named = fired.labels["node"], fired.labels["rank"]
    story.expect(f"rank {RANK} on {node} is named", named == (node, RANK))
    job_resumed(story)
    story.clear()
    story.resolves("JobStalled")
    story.wait(f"sum({REQUEUES}) == {before[0] + 1}", "the requeue to be counted")
    story.wait(f'sum({ENDED}{{state="REQUEUED"}}) == {before[1] + 1}', "the end to be counted")
    job_quiet(story)


def no_capacity(story: Story) -> None:
    """The free nodes go away, and jobs ask for more than is left."""
    job = story.train()
    free = [node for node in NODES if node not in story.lab.nodes_of(job)]
    slurm = story.lab.slurm

    def take_away() -> None:
        reason = "reason=InsufficientInstanceCapacity"
        slurm.run("scontrol", "update", f"nodename={','.join(free)}", "state=drain", reason)

    story.inject("no_capacity", take_away, nodes=",".join(free))
    wanted = [slurm.submit("-N2", f"--gres=gpu:h200:{GPUS}", script="true") for _ in range(2)]
    whole = slurm.submit(f"-N{len(NODES)}", f"--gres=gpu:h200:{GPUS}", script="true")
    pending = select("slurm_queue_jobs", partition="train", state="PENDING")
    story.wait(f"sum({pending}) == 3", "three jobs to be pending")
    reasons = 'reason=~"Resources|Priority|NodesUnavailable|ReqNodeNotAvail"'
    story.wait(f'sum(slurm_queue_jobs{{state="PENDING", {reasons}}}) == 3', "their reasons")
    found = story.query(f"max by (reason) ({pending} > 0)")
    story.facts["reasons"] = sorted(each.labels["reason"] for each in found)
    story.say(f"pending because of {', '.join(story.facts['reasons'])}")
    gpus = select("slurm_queue_gpus", state="PENDING", gpu_type="h200")
    story.wait(f"sum({gpus}) == {(2 + 2 + len(NODES)) * GPUS}", "the GPUs asked for")
    story.wait(f"max(slurm_pending_age_seconds{{{reasons}}}) > 5", "their age to grow")
    story.fires("SlurmNodeDrained", node=free[0])
    step = story.value(f"max({story.rank_series('rl_rank_step')})", "the step")
    story.wait(f"min({story.rank_series('rl_rank_step')}) > {step}", "the running job to go on")
    story.expect("no agent fails", not story.query("stagewatch_collector_success == 0"))
    pages = story.query(select("ALERTS", alertstate="firing", severity="critical"))
    story.expect("nodes that were taken away on purpose page nobody", not pages)
    slurm.run("scontrol", "update", f"nodename={','.join(free)}", "state=resume")
    for each in wanted:
        slurm.wait_job(each, "COMPLETED")
    slurm.run("scancel", whole)
    story.clear()
    story.resolves("SlurmNodeDrained")
    story.wait(f"(sum({pending}) or vector(0)) == 0", "the queue to be empty")
    job_quiet(story)


def requeue_loop(story: Story) -> None:
    """A job that fails at every start and is requeued."""
    slurm = story.lab.slurm

    held = ("--hold", "--requeue", "--job-name=broken")
    story.job = slurm.submit(*held, script=f"exit {TRY_AGAIN}")
    story.inject(
        "requeue_loop", lambda: slurm.run("scontrol", "release", story.job), job_id=story.job
    )
    fired = story.fires("SlurmRequeueLoop", job_id=story.job)
    story.expect("its user is named", fired.labels["user"] == "root")
    slurm.run("scancel", story.job)
    story.clear()
    story.resolves("SlurmRequeueLoop")
    cancelled = select(ENDED, partition="train", state="CANCELLED")
    story.wait(f"{cancelled} > 0", "its last end to be counted")
