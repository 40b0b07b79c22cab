"""The node agent: the one list of its collectors."""

from __future__ import annotations

from stagewatch.agent.command import AgentCommand
from stagewatch.agent.node_context import NodeOptions, node_context
from stagewatch.collectors import (
    blocked_tasks,
    canary,
    checkpoints,
    clock,
    faults,
    gpu,
    gpu_jobs,
    infiniband,
    io,
    kmsg,
    logs,
    net,
    nfs,
    probe,
    processes,
    rank_io,
    ranks,
    stages,
)
from stagewatch.core.collector import CollectorSpec


def collector_specs() -> tuple[CollectorSpec, ...]:
    """Every collector of the node agent, in the order of the exposition."""
    return (
        gpu.SPEC,
        gpu_jobs.SPEC,
        kmsg.SPEC,
        stages.SPEC,
        ranks.SPEC,
        rank_io.SPEC,
        processes.SPEC,
        blocked_tasks.SPEC,
        io.SPEC,
        nfs.SPEC,
        canary.SPEC,
        checkpoints.SPEC,
        logs.SPEC,
        net.SPEC,
        infiniband.SPEC,
        probe.SPEC,
        clock.SPEC,
        faults.SPEC,
    )


COMMAND = AgentCommand(
    name="node",
    help="The agent of one GPU node: collects in the background and serves /metrics and a status "
    "page.",
    options=NodeOptions,
    specs=collector_specs,
    context=node_context,
)
