"""The Slurm agent: one process per cluster, on a login or controller node."""

from __future__ import annotations

from stagewatch.agent import AgentCommand
from stagewatch.core.collector import AnySpec
from stagewatch.slurm.collectors import accounting as slurm_accounting
from stagewatch.slurm.collectors import controller as slurm_controller
from stagewatch.slurm.collectors import discovery as slurm_discovery
from stagewatch.slurm.collectors import events as slurm_events
from stagewatch.slurm.collectors import jobs as slurm_jobs
from stagewatch.slurm.collectors import nodes as slurm_nodes
from stagewatch.slurm.collectors import queue as slurm_queue
from stagewatch.slurm.collectors import reservations as slurm_reservations
from stagewatch.slurm.collectors import sources as slurm_sources
from stagewatch.slurm.collectors import steps as slurm_steps
from stagewatch.slurm.context import SlurmContext, SlurmOptions, slurm_context


def collector_specs() -> tuple[AnySpec[SlurmContext], ...]:
    """Every collector of the Slurm agent, in the order of the exposition."""
    return (
        slurm_queue.SPEC,
        slurm_nodes.SPEC,
        slurm_events.SPEC,
        slurm_accounting.SPEC,
        slurm_controller.SPEC,
        slurm_jobs.SPEC,
        slurm_reservations.SPEC,
        slurm_steps.SPEC,
        slurm_discovery.SPEC,
        slurm_sources.SPEC,
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
