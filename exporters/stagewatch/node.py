"""The node agent: the one list of its collectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from stagewatch.agent import AgentCommand
from stagewatch.clock import collector as clock
from stagewatch.core.collector import CollectorSpec
from stagewatch.core.context import Route
from stagewatch.core.errors import SourceError
from stagewatch.core.privileges import capabilities
from stagewatch.core.words import denied
from stagewatch.faults import collector as faults
from stagewatch.gpu import collector as gpu
from stagewatch.gpu import jobs as gpu_jobs
from stagewatch.host.procfs import Procfs
from stagewatch.incidents import collector as incidents
from stagewatch.incidents.files import IncidentDirectory
from stagewatch.kernel_log import collector as kmsg
from stagewatch.kernel_log.reader import Kmsg
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
from stagewatch.ranks.nccl.files import nccl_files
from stagewatch.ranks.servers import Servers
from stagewatch.ranks.stacks import StackTaker
from stagewatch.ranks.waits.look import Waits
from stagewatch.slurm.node_jobs import SlurmCgroups
from stagewatch.storage import canary, checkpoints, io, nfs
from stagewatch.web.events import events_page


def collector_specs() -> tuple[CollectorSpec[NodeContext], ...]:
    """Every collector of the node agent, in the order of the exposition."""
    return (
        gpu.SPEC.built(lambda options, node: gpu.collector(options, node.xids, node.gpus)),
        gpu_jobs.SPEC.built(
            lambda options, node: gpu_jobs.GpuJobsCollector(
                node.gpus,
                node.proc,
                node.files,
                SlurmCgroups(node.options.sys / "fs/cgroup"),
                options.prolog_dir,
            )
        ),
        kmsg.SPEC.built(
            lambda options, node: kmsg.KmsgCollector(
                Kmsg(options.path, privileged=node.open_kernel_log),
                node.xids,
                ranks=node.families.rank_of_process,
                state_file=options.state_file,
                boot_id=node.proc.boot_id(),
                from_user_space=options.from_user_space,
            )
        ),
        census.SPEC.built(lambda _, node: census.CensusCollector(node.ranks)),
        stages.SPEC.built(lambda _, node: stages.StagesCollector(node.ranks)),
        activity.SPEC.built(
            lambda _, node: activity.RanksCollector(node.ranks, node.proc, device=node.gpus.state)
        ),
        work.SPEC.built(
            lambda _, node: work.WorkCollector(
                node.ranks.ranks, node.io, node.sockets, stillness=node.stillness
            )
        ),
        replicas.SPEC.built(lambda _, node: replicas.ReplicasCollector(node.ranks)),
        rank_io.SPEC.built(lambda _, node: rank_io.RankIoCollector(node.io)),
        processes.SPEC.built(
            lambda _, node: processes.ProcessesCollector(
                node.families, node.options.proc, sys=node.options.sys
            )
        ),
        blocked_tasks.SPEC.built(
            lambda _, node: blocked_tasks.BlockedTasksCollector(node.families, node.proc)
        ),
        nccl.SPEC.built(lambda options, node: nccl.InspectorCollector(options.dir, node.ranks)),
        io.SPEC.built(lambda _, node: io.IoCollector(node.options.proc, node.options.sys)),
        nfs.SPEC.built(
            lambda options, node: nfs.NfsCollector(
                options.descriptor or node.options.proc / options.process / "mountstats"
            )
        ),
        canary.SPEC.built(
            lambda options, node: canary.collector(options, node.helper, node.options.proc)
        ),
        checkpoints.SPEC.built(lambda options, node: checkpoints.collector(options, node.helper)),
        logs.SPEC.built(lambda options, node: logs.collector(options, node.helper)),
        sockets.SPEC.built(lambda _, node: sockets.NetCollector(node.sockets)),
        infiniband.SPEC.built(lambda _, node: infiniband.InfinibandCollector(node.options.sys)),
        probe.SPEC.built(lambda options, node: probe.collector(options, node.helper)),
        clock.SPEC.built(lambda _, node: clock.ClockCollector(node.read_clock)),
        faults.SPEC.built(lambda _, node: faults.FaultsCollector(node.options.fault_dir)),
        incidents.SPEC.built(
            lambda options, node: incidents.IncidentsCollector(
                node.ranks,
                node.proc,
                IncidentDirectory(options.dir),
                StackTaker(start=node.start),
                findings=node.findings,
                files=node.files,
                waits=Waits(start=node.start),
                servers=Servers(node.sockets, node.families, node.proc, node.files),
                nccl=nccl_files(node.options.record_dir, node.proc),
                device=node.gpus.state,
                still=node.stillness.seconds,
            )
        ),
    )


def _routes(context: NodeContext) -> Mapping[str, Route]:
    options = context.options
    return {"/events": events_page(context.ranks, options.fault_dir, options.title())}


def _warnings(options: NodeOptions) -> Iterator[str]:
    """Warnings on what an agent of the calling user could not see, for lack of privileges."""
    if {capabilities.SYS_PTRACE, capabilities.DAC_READ_SEARCH} <= capabilities.held():
        return
    with contextlib.suppress(SourceError):
        if count := denied_here(Procfs(options.proc)):
            yield denied(count)


COMMAND = AgentCommand(
    name="node",
    help="The agent of one GPU node: collects in the background and serves /metrics and a status "
    "page.",
    options=NodeOptions,
    specs=collector_specs,
    context=node_context,
    routes=_routes,
    warnings=_warnings,
    judged=lambda context: context.findings.latest,
)
