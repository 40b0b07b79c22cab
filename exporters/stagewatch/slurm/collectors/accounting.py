"""Reads accounting, for the events collector to count; a slow slurmdbd holds up nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData, StagewatchError
from stagewatch.core.exposition import Metric, Samples
from stagewatch.slurm.model import EndedJob, NodeEvent, Records
from stagewatch.slurm.source import Source

if TYPE_CHECKING:
    from stagewatch.slurm.context import SlurmContext

RECORDS = Metric(
    "slurm_accounting_records",
    "gauge",
    "Records in the last answer of accounting, by kind (jobs, nodes); most were known already.",
    ("kind",),
)


class AccountingCollector(Collector):
    """Keeps the last answers of accounting fresh."""

    def __init__(self, jobs: Source[Records[EndedJob]], nodes: Source[Records[NodeEvent]]) -> None:
        self._sources: dict[str, Source[Records[Any]]] = {"jobs": jobs, "nodes": nodes}

    def collect(self) -> Samples:
        """Ask for both; raises what the first failing one did, once both were tried."""
        out = Samples()
        errors: list[StagewatchError] = []
        for kind, source in self._sources.items():
            try:
                out.add(RECORDS, len(source.refresh().items), kind)
            except StagewatchError as error:
                errors.append(error)
        failures = [error for error in errors if not isinstance(error, NoData)]
        if failures or errors:
            raise (failures or errors)[0]
        return out


def _build(options: NoOptions, context: SlurmContext) -> Collector:
    return AccountingCollector(context.cluster.ended_jobs, context.cluster.node_events)


SPEC = CollectorSpec(
    name="slurm_accounting",
    help="ended jobs and events of nodes from slurmdbd (sacct, sacctmgr)",
    interval=60,
    options=NoOptions,
    build=_build,
)
