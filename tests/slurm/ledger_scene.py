"""Jobs, nodes and what accounting says of them, for the tests of Slurm's ledgers."""

from __future__ import annotations

from dataclasses import replace

from stagewatch.slurm.model import EndedJob, Job, Node, NodeEvent

T = 1750000000


def job(job_id: int = 1, state: str = "RUNNING", **changes: object) -> Job:
    """A job of the queue."""
    base = Job(
        job_id=job_id,
        array_job_id=None,
        tasks=1,
        state=state,
        reason="",
        partitions=("gpu",),
        user="ada",
        account="physics",
        node_list="n1",
        gpus=(),
        submit=T,
        eligible=T,
        start=T + 10,
        end=T + 100,
        restarts=0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def record(job_id: int = 1, state: str = "COMPLETED", **changes: object) -> EndedJob:
    """A record of accounting."""
    base = EndedJob(
        job_id=job_id,
        tasks=1,
        state=state,
        partition="gpu",
        submit=T,
        eligible=T,
        start=T + 10,
        end=T + 100,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def node(name: str = "n1", state: str = "IDLE", flags: str = "", **changes: object) -> Node:
    """A node of the controller's list."""
    base = Node(
        name=name,
        state=state,
        flags=frozenset(flags.split()),
        partitions=("gpu",),
        gpus=(),
        address=name,
        reason="",
        reason_user="",
        reason_time=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def event(node: str = "n1", start: int = T, end: int | None = None, **changes: str) -> NodeEvent:
    """An event of accounting."""
    return NodeEvent(
        node=node,
        state=changes.get("state", "DOWN"),
        start=start,
        end=end,
        reason=changes.get("reason", "link down"),
    )
