"""Keeps service discovery's list of nodes in step with the controller's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Metric, Samples

if TYPE_CHECKING:
    from stagewatch.slurm.context import SlurmContext

TARGETS = Metric(
    "slurm_discovery_targets",
    "gauge",
    "Nodes that service discovery lists, whether the controller answers now or not.",
    ("cluster",),
)


class DiscoveryCollector(Collector):
    """Hands new lists of nodes over; asks nobody."""

    def __init__(self, context: SlurmContext) -> None:
        self._context = context
        self._applied: dict[str, int] = {}

    def collect(self) -> Samples:
        """From memory; files are written when the list has changed."""
        for cluster in self._context.clusters:
            reading = cluster.nodes.reading
            if reading is not None and self._applied.get(cluster.name) != reading.sequence:
                self._context.discover(cluster, reading.data.items)
                self._applied[cluster.name] = reading.sequence
        counts = self._context.discovery.counts()
        if not counts:
            for cluster in self._context.clusters:
                if (failure := cluster.nodes.status().error) is not None:
                    raise SourceError(f"no list of nodes: {failure}")
            raise NoData("no list of nodes yet")
        out = Samples()
        for name, number in counts.items():
            out.add(TARGETS, number, name)
        return out


def _build(options: NoOptions, context: SlurmContext) -> Collector:
    return DiscoveryCollector(context)


SPEC = CollectorSpec(
    name="slurm_discovery",
    help="the list of nodes at /sd, and its files",
    interval=5,
    options=NoOptions,
    build=_build,
)
