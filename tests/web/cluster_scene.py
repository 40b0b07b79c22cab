"""A Slurm cluster in trouble, for the page of its agent.

`python -m tests.web.cluster_scene` serves the page on a free port until it is interrupted.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch.slurm.model import Job, Node
from stagewatch.slurm.notation import NodeGpus
from tests.slurm import scene
from tests.web.status_scenes import HOSTILE, Parts, serve_until_interrupted

NODES = 96
RUNNING = 24
JOBS = 40
TROUBLE: dict[int, dict[str, Any]] = {
    8: {"state": "IDLE", "flags": {"DRAIN"}, "reason": "gpu 3: XID 79, fell off the bus"},
    9: {"state": "MIXED", "flags": {"DRAIN"}, "reason": HOSTILE},
    41: {"state": "DOWN", "reason": "Not responding"},
    42: {"state": "ALLOCATED", "flags": {"NOT_RESPONDING"}},
}
"""By the number of the node."""


def cluster(nodes: int = NODES) -> Parts:
    """Two nodes are drained, one is down, one does not answer; jobs run and wait."""
    made = [_node(number) for number in range(1, nodes + 1)]
    jobs = [_job(number) for number in range(JOBS)]
    return {
        "slurm_nodes": lambda: slurm_nodes.measure(made),
        "slurm_queue": lambda: slurm_queue.measure(jobs, now=time.time(), top=50),
        "slurm_jobs": lambda: slurm_jobs.measure(jobs, made),
    }


def _node(number: int) -> Node:
    change = {"state": "ALLOCATED" if number % 8 else "IDLE", **TROUBLE.get(number, {})}
    used = {"ALLOCATED": 8, "MIXED": 4}.get(change["state"], 0)
    return replace(
        scene.NODES.items[0],
        name=f"gpu-{number:04}",
        partitions=("train",),
        gpus=(NodeGpus("h200", 8, used, tuple(range(used))),),
        state=change["state"],
        flags=frozenset(change.get("flags", ())),
        reason=change.get("reason", ""),
        reason_time=int(time.time()) - 3 * 86400,
    )


def _job(number: int) -> Job:
    running = number < RUNNING
    began = int(time.time()) - 1800 * (number + 1)
    return replace(
        scene.JOBS.items[0],
        job_id=7000 + number,
        array_job_id=None,
        user=f"user{number % 7}",
        state="RUNNING" if running else "PENDING",
        reason="" if running else ("Resources", "Priority", "QOSMaxGRESPerUser")[number % 3],
        partitions=("train",),
        node_list=f"gpu-{number + 1:04}" if running else "",
        gpus=(("h200", 8),),
        submit=began,
        eligible=began,
        start=began if running else None,
        end=None,
    )


if __name__ == "__main__":
    serve_until_interrupted(cluster(), 0, "login-1")
