"""A second reading of a cluster, by other commands and other means than stagewatch uses.

What it returns is keyed like an exposition: a metric's name and its label values.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from stagewatch_lab.slurm.cluster import SlurmCluster

Numbers = dict[tuple[str, ...], float]
ENDED = {
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
}

SENTENCES = {
    "Nodes_required_for_job": "NodesUnavailable",
    "job_requeued_in_held_state": "RequeuedHeld",
}


def queue(cluster: SlurmCluster) -> Numbers:
    """Jobs and GPUs in the queue, from `scontrol show job`."""
    found: Counter[tuple[str, ...]] = Counter()
    found["slurm_jobs", "PENDING"] = found["slurm_jobs", "RUNNING"] = 0
    shown = cluster.run("scontrol", "-o", "show", "job", env={"SLURM_BITSTR_LEN": "0"})
    shown = re.sub(r"JobName=.*? UserId=", "UserId=", shown, flags=re.DOTALL)
    for line in re.split(r"^(?=JobId=)", shown, flags=re.MULTILINE):
        if not line.startswith("JobId="):
            continue
        state = _value(line, "JobState")
        if state in ENDED:
            continue
        tasks = _tasks(_value(line, "ArrayTaskId"))
        reason = _value(line, "Reason").split(",")[0] if state == "PENDING" else ""
        for sentence, name in SENTENCES.items():
            reason = name if reason.startswith(sentence) else reason
        user = _value(line, "UserId").partition("(")[0]
        account = _value(line, "Account").replace("(null)", "none")
        gpus = _gpus(_value(line, "TRES"), "any" if state == "PENDING" else "unknown")
        found["slurm_jobs", state] += tasks
        found["slurm_user_jobs", user, state] += tasks
        found["slurm_account_jobs", account, state] += tasks
        for kind, number in gpus.items():
            found["slurm_user_gpus", user, state] += number * tasks
            found["slurm_account_gpus", account, state] += number * tasks
            for partition in _value(line, "Partition").split(","):
                found["slurm_queue_gpus", partition, state, kind] += number * tasks
        for partition in _value(line, "Partition").split(","):
            found["slurm_queue_jobs", partition, state, reason] += tasks
    return dict(found)


def nodes(cluster: SlurmCluster) -> Numbers:
    """States from `scontrol show node`, one by one; the rest from sinfo."""
    found: Counter[tuple[str, ...]] = Counter()
    configured: dict[tuple[str, str], dict[str, str]] = {}
    used: dict[tuple[str, str], dict[str, str]] = {}
    states: dict[str, list[str]] = {}
    table = cluster.run(
        "sinfo", "-h", "-a", "-N", "-O", "NodeList:\t,Partition:\t,Gres:\t,GresUsed:\t"
    )
    for row in table.splitlines():
        name, partition, gres, gres_used, *_ = row.split("\t")
        key = (name, partition.rstrip("*"))
        configured[key] = dict(re.findall(r"gpu:([a-z]\w*):(\d+)", gres))
        used[key] = dict(re.findall(r"gpu:([a-z]\w*):(\d+)", gres_used))
        if name not in states:
            states[name] = cluster.state(name).replace("*", "+NOT_RESPONDING").split("+")
            _node(found, name, states[name], configured[key])
    once: set[str] = set()
    for (name, partition), gpus in configured.items():
        unusable = _availability(states[name])
        found["slurm_nodes", partition, unusable] += 1
        found["slurm_partition_nodes", partition, states[name][0]] += 1
        for kind, count in gpus.items():
            busy = 0 if states[name][0] == "DOWN" else int(used[name, partition].get(kind, 0))
            idle = {"available": "free", "drain": "free_drained", "down": "down"}[unusable]
            for state in ("allocated", "free", "free_drained", "down"):
                number = (state == "allocated") * busy + (state == idle) * (int(count) - busy)
                found["slurm_gpus", partition, kind, state] += number
                if name not in once:
                    found["slurm_cluster_gpus", kind, state] += number
        once.add(name)
    return dict(found)


def _node(
    found: Counter[tuple[str, ...]], name: str, state: list[str], gpus: dict[str, str]
) -> None:
    found["slurm_node_state", name, state[0]] = 1
    found["slurm_cluster_nodes", state[0]] += 1
    for flag in state[1:]:
        found["slurm_node_flag", name, flag] = 1
    for kind, number in gpus.items():
        found["slurm_node_gpus", name, kind, kind] = int(number)


def _availability(state: list[str]) -> str:
    if "DOWN" in state or "NOT_RESPONDING" in state:
        return "down"
    return "drain" if "DRAIN" in state else "available"


def ended(cluster: SlurmCluster, since: int) -> Numbers:
    """Runs that ended, from sacct: how many per partition and state since a Unix time."""
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    table = cluster.run(
        *("sacct", "-a", "-X", "-D", "-n", "-P", f"--starttime={_stamp(since)}"),
        # Without the states sacct leaves out jobs that were cancelled before being eligible.
        *("--endtime=now", "--state=BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"),
        *("--format=JobID,Partition,State,End",),
        env={"SLURM_TIME_FORMAT": "%s"},
    )
    for row in table.splitlines():
        job, partition, state, end = row.split("|")
        state = state.split(" ")[0]
        if end == "Unknown" or int(end) < since:
            continue
        tasks = _tasks(job.partition("_")[2].strip("[]")) if "[" in job else 1
        found["slurm_jobs_ended_total", partition, state] += tasks
    return dict(found)


def restarts(cluster: SlurmCluster) -> Numbers:
    """Restarts of all jobs that the controller still knows, by partition, from squeue."""
    found: Counter[tuple[str, ...]] = Counter()
    for row in cluster.run("squeue", "-h", "-t", "all", "-O", "Partition,RestartCnt").splitlines():
        partition, number = row.split()
        if int(number):
            found["slurm_job_requeues_total", partition] += int(number)
    return dict(found)


def requests(cluster: SlurmCluster) -> Counter[str]:
    """Requests to the controller by type, from `sdiag`, whose own are among them.

    Its last section lists with counts too what waits to be sent to nodes; that is left out.
    """
    shown = cluster.run("sdiag").partition("statistics by message type")[2].partition("\n\n")[0]
    found = re.findall(r"^\t(\w+) +\( *\d+\) count:(\d+)", shown, flags=re.MULTILINE)
    return Counter({kind: int(count) for kind, count in found})


def requests_since(cluster: SlurmCluster, before: Counter[str]) -> Counter[str]:
    """Requests by type since `before` was read, without the reading's own."""
    return requests(cluster) - before - Counter({"REQUEST_STATS_INFO": 1})


def _stamp(moment: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime(
        "%Y-%m-%dT%H:%M:%S"
    )


def _value(line: str, name: str) -> str:
    match = re.search(rf"(?:^| ){re.escape(name)}=(\S*)", line)
    return match[1] if match else ""


def _tasks(text: str) -> int:
    text = text.partition("%")[0]
    if not text:
        return 1
    total = 0
    for part in text.split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        total += len(range(int(low), int(high or low) + 1, int(step or 1)))
    return total


def _gpus(tres: str, untyped: str) -> dict[str, int]:
    typed = {kind: int(n) for kind, n in re.findall(r"gres/gpu:([^=,]+)=(\d+)", tres)}
    whole = re.search(r"gres/gpu=(\d+)", tres)
    rest = int(whole[1]) - sum(typed.values()) if whole else 0
    return {**typed, **({untyped: rest} if rest else {})}
