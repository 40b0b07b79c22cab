"""Keeps the nodes of service discovery equal to those of the controller."""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData, SourceError
from stagewatch.core.exposition import Samples, gauge
from stagewatch.slurm.cluster import Source
from stagewatch.slurm.discovery import Discovery
from stagewatch.slurm.model import Node, Records

TARGETS = gauge(
    "slurm_discovery_targets",
    "Nodes that service discovery lists; the last good list while the controller does not answer.",
    ("cluster",),
)


class DiscoveryCollector(Collector):
    """Hands each new list of nodes to service discovery."""

    def __init__(self, nodes: Source[Records[Node]], discovery: Discovery) -> None:
        self._nodes = nodes
        self._discovery = discovery
        self._applied = 0

    def collect(self) -> Samples:
        """Update the list if there is a new answer; this does not wait for one."""
        nodes, discovery = self._nodes, self._discovery
        reading = nodes.keep_fresh()
        if reading is not None and self._applied != reading.sequence:
            discovery.update(reading.data.items)
            self._applied = reading.sequence
        if discovery.places is None:
            if (failure := nodes.failure) is not None:
                raise SourceError(f"no list of nodes: {failure}")
            raise NoData("no list of nodes yet")
        out = Samples()
        out.add(TARGETS, len(discovery.places), discovery.cluster)
        return out


SPEC = Declaration(
    name="slurm_discovery",
    help="the list of nodes at /sd",
    interval=5,
    options=NoOptions,
)
