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
        queue.SPEC.built(
            lambda _, slurm: queue.QueueCollector(slurm.cluster.jobs, slurm.cluster.nodes)
        ),
        nodes.SPEC.built(lambda _, slurm: nodes.NodesCollector(slurm.cluster.nodes)),
        events.SPEC.built(lambda _, slurm: events.EventsCollector(slurm.cluster)),
        controller.SPEC.built(
            lambda _, slurm: controller.ControllerCollector(
                slurm.cluster.diagnostics, slurm.cluster.ping
            )
        ),
        jobs.SPEC.built(
            lambda options, slurm: jobs.JobsCollector(slurm.cluster, max_jobs=options.max_jobs)
        ),
        holdings.SPEC.built(lambda _, slurm: holdings.HoldingsCollector(slurm.cluster)),
        steps.SPEC.built(
            lambda _, slurm: steps.StepsCollector(
                slurm.cluster.jobs, slurm.cluster.client.steps_answer
            )
        ),
        discovery.SPEC.built(
            lambda _, slurm: discovery.DiscoveryCollector(slurm.cluster.nodes, slurm.discovery)
        ),
        sources.SPEC.built(lambda _, slurm: sources.SourcesCollector(slurm.cluster)),
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
