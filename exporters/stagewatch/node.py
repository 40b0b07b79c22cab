"""The node agent: the one list of its collectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from stagewatch.agent import AgentCommand
from stagewatch.clock import collector as clock
from stagewatch.core.collector import AnySpec
from stagewatch.core.context import Route
from stagewatch.core.errors import SourceError
from stagewatch.core.privileges import capabilities
from stagewatch.core.words import denied
from stagewatch.faults import collector as faults
from stagewatch.gpu import collector as gpu
from stagewatch.gpu import jobs as gpu_jobs
from stagewatch.host.procfs import Procfs
from stagewatch.incidents import collector as incidents
from stagewatch.kernel_log import collector as kmsg
from stagewatch.logs import collector as logs
from stagewatch.network import infiniband, probe
from stagewatch.node_context import NodeContext, NodeOptions, node_context
from stagewatch.ranks import (
    activity,
    blocked_tasks,
    census,
    processes,
    replicas,
    sockets,
    stages,
    work,
)
from stagewatch.ranks import io as rank_io
from stagewatch.ranks.environment_scan import denied_here
from stagewatch.ranks.nccl import collector as nccl
from stagewatch.storage import canary, checkpoints, io, nfs
from stagewatch.web.events import events_page
from stagewatch.web.facts import PageSources
from stagewatch.web.strips import Strips


def collector_specs() -> tuple[AnySpec[NodeContext], ...]:
    """Every collector of the node agent, in the order of the exposition."""
    return (
        gpu.SPEC,
        gpu_jobs.SPEC,
        kmsg.SPEC,
        census.SPEC,
        stages.SPEC,
        activity.SPEC,
        work.SPEC,
        replicas.SPEC,
        rank_io.SPEC,
        processes.SPEC,
        blocked_tasks.SPEC,
        nccl.SPEC,
        io.SPEC,
        nfs.SPEC,
        canary.SPEC,
        checkpoints.SPEC,
        logs.SPEC,
        sockets.SPEC,
        infiniband.SPEC,
        probe.SPEC,
        clock.SPEC,
        faults.SPEC,
        incidents.SPEC,
    )


def _routes(context: NodeContext) -> Mapping[str, Route]:
    options = context.options
    return {"/events": events_page(context.ranks, options.fault_dir, options.title())}


def _warnings(options: NodeOptions) -> Iterator[str]:
    """What an agent of the user who asks would not see, where he lacks what it takes."""
    if {capabilities.SYS_PTRACE, capabilities.DAC_READ_SEARCH} <= capabilities.held():
        return
    with contextlib.suppress(SourceError):
        if count := denied_here(Procfs(options.proc)):
            yield denied(count)


def _sources(context: NodeContext) -> PageSources:
    return PageSources(context.findings.latest, Strips(context.ranks), context.gpu_history)


COMMAND = AgentCommand(
    name="node",
    help="The agent of one GPU node: collects in the background and serves /metrics and a status "
    "page.",
    options=NodeOptions,
    specs=collector_specs,
    context=node_context,
    routes=_routes,
    warnings=_warnings,
    sources=_sources,
)
