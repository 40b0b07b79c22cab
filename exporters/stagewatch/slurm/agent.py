"""The Slurm agent: one process per cluster, on a login or controller node."""

from __future__ import annotations

from stagewatch.agent import AgentCommand
from stagewatch.core.collector import CollectorSpec
from stagewatch.slurm.collectors import (
    controller,
    discovery,
    events,
    holdings,
    jobs,
    nodes,
    queue,
    sources,
    steps,
)
from stagewatch.slurm.context import SlurmContext, SlurmOptions, slurm_context


def collector_specs() -> tuple[CollectorSpec[SlurmContext], ...]:
    """Every collector of the Slurm agent, in the order of the exposition."""
    return (
        queue.SPEC,
        nodes.SPEC,
        events.SPEC,
        controller.SPEC,
        jobs.SPEC,
        holdings.SPEC,
        steps.SPEC,
        discovery.SPEC,
        sources.SPEC,
    )


COMMAND = AgentCommand(
    name="slurm",
    help="The agent of a Slurm cluster: asks the controller in the background and serves "
    "/metrics, service discovery at /sd, and a status page.",
    options=SlurmOptions,
    specs=collector_specs,
    context=slurm_context,
    routes=lambda context: context.discovery.routes(),
)
