"""What happens to nodes and to the controller while a job trains."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time

from stagewatch.prometheus.selectors import select
from stagewatch_lab.slurm.lab import NODES
from stagewatch_lab.slurm.phases import job_quiet, job_resumed, node_back, node_out
from stagewatch_lab.slurm.story import Story

FAILURES = "slurm_node_failures_total"
ENDED = "slurm_jobs_ended_total"
REASON = "Xid 79: GPU has fallen off the bus"


def node_drained(story: Story) -> None:
    """A node with a job is drained, and forgotten until the alert says what to run."""
    job = story.train()
    node = story.lab.nodes_of(job)[-1]
    slurm = story.lab.slurm
    before = story.counter(FAILURES, kind="drain", reason_class="gpu")
    drain = ("scontrol", "update", f"nodename={node}", "state=drain", f"reason={REASON}")
    story.inject("node_drain", lambda: slurm.run(*drain), node=node)
    node_out(story, node, "drain")
    fired = story.fires("SlurmNodeDrained", node=node)
    story.expect("the reason is told", REASON in fired.description)
    failures = select(FAILURES, kind="drain", reason_class="gpu")
    story.wait(f"{failures} == {before + 1}", "the drain to be counted")
    command = re.search(r"scontrol update nodename=\S+ state=resume", fired.description)
    story.expect("the alert has the command to run", command)
    slurm.run(*shlex.split(command[0] if command else ""))
    node_back(story, node, "drain")
    story.clear()
    story.resolves("SlurmNodeDrained")
    restarted = story.query(select("slurm_job_restarts", job_id=job))
    story.expect(f"job {job} has run all the while", not restarted and _trains(story))
    job_quiet(story)


def node_failed(story: Story) -> None:
    """A node with ranks of the job loses power, and comes back when the job runs elsewhere."""
    job = story.train()
    node = story.lab.nodes_of(job)[-1]
    before = story.counter(FAILURES, kind="down"), story.counter(ENDED, state="NODE_FAIL")
    story.inject("node_kill", lambda: story.lab.power_off(node), node=node)
    node_out(story, node, "down")
    job_resumed(story)
    elsewhere = story.lab.nodes_of(job)
    story.expect(f"job {job} now runs on {','.join(elsewhere)}", node not in elsewhere)
    for name in ("SlurmNodeDown", "StagewatchAgentUnreachable"):
        story.fires(name, node=node)
    story.fires("JobLostNode", node=node, job_id=job)
    story.fires("SlurmJobsEndedByNodeFailure", partition="train")
    story.wait(f'sum({FAILURES}{{kind="down"}}) == {before[0] + 1}', "the failure to be counted")
    story.wait(f'sum({ENDED}{{state="NODE_FAIL"}}) == {before[1] + 1}', "the end to be counted")
    story.lab.power_on(node)
    node_back(story, node, "down")
    story.clear()
    for name in ("SlurmNodeDown", "StagewatchAgentUnreachable", "JobLostNode"):
        story.resolves(name)
    job_quiet(story)


def controller_killed(story: Story) -> None:
    """slurmctld dies and is started again; jobs and other alerts continue."""
    job = story.train()
    lab, slurm = story.lab, story.lab.slurm
    spare = next(node for node in NODES if node not in lab.nodes_of(job))
    reason = f"{REASON}, ticket {job}"
    slurm.run("scontrol", "update", f"nodename={spare}", "state=drain", f"reason={reason}")
    drained = select("ALERTS", alertname="SlurmNodeDrained", alertstate="firing", node=spare)
    story.wait(drained, "an alert from before")
    info = select("rl_rank_info", job_id=job, role="train", rank="2")
    pid = int(story.wait(info, "a rank")[0].labels["pid"])
    before = _counters(story)
    slurm.wait_job_saved(job)
    slurm.wait_reason_saved(reason)
    story.inject(
        "controller_kill",
        lambda: slurm.daemons.stop("slurmctld", signal.SIGKILL),
        daemon="slurmctld",
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        for name in ("SlurmControllerDown", "SlurmBlocksNodesAnswer"):
            story.fires(name)
        named = story.fires("JobStalled", job_id=job, severity="critical").labels["rank"]
        story.expect("a rank that stops meanwhile is named", named == "2")
    finally:
        os.kill(pid, signal.SIGCONT)
    story.expect("nothing is known of nodes", not story.query("slurm_node_state"))
    story.expect("the alert from before still fires", story.query(drained))
    story.expect("the job trains on", _trains(story))
    started = time.time()
    slurm.start_controller()
    story.gone("slurm_controller_up == 0", "the controller to answer")
    story.begins("controller_back", "slurm_controller_up", started)
    for name in ("SlurmControllerDown", "SlurmBlocksNodesAnswer", "JobStalled"):
        story.resolves(name)
    # Until then it is UNKNOWN, and Slurm refuses to resume it.
    story.wait(select("slurm_node_state", node=spare, state="IDLE"), f"{spare} to have answered")
    story.clear()
    story.expect("nothing was counted as ended, requeued or failed", _counters(story) == before)
    story.expect("the alert from before fires on", story.query(drained))
    since = int(time.time() - story.phases["injection"])
    down = f'max_over_time(ALERTS{{alertname=~"SlurmNodeDown|SlurmNodeCountDropped"}}[{since}s])'
    back = f"max_over_time({select('node:recovery:event', node=spare)}[{since}s])"
    called = [series.labels for series in story.query(f"{down} or {back}")]
    story.expect(f"no node was called down or back: {called}", not called)
    story.expect(f"job {job} has run all the while", slurm.job_state(job) == "RUNNING")
    slurm.run("scontrol", "update", f"nodename={spare}", "state=resume")
    story.gone(drained, "the alert from before to resolve")
    job_quiet(story)


def _counters(story: Story) -> dict[str, float]:
    """Counters of ends and failures, which must not change while nothing happens."""
    names = '__name__=~"slurm_(jobs_ended|job_requeues|node_failures)_total"'
    return {
        str(sorted(each.labels.items())): each.value for each in story.query(f"{{{names}}} > 0")
    }


def _trains(story: Story) -> bool:
    step = story.value(f"max({story.rank_series('rl_rank_step')})", "the step")
    story.wait(f"min({story.rank_series('rl_rank_step')}) > {step}", "the job to train on")
    return True
