"""The health of the sources: whether they answer, how fast, and the age of their last good data.

This collector asks nobody, so a source that hangs cannot delay it.
"""

from __future__ import annotations

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.exposition import Samples, gauge
from stagewatch.slurm.cluster import Cluster
from stagewatch.slurm.model import Records

_LABEL = ("source",)
SUCCESS = gauge("slurm_source_success", "1 if the last fetch from the source succeeded.", _LABEL)
AGE = gauge("slurm_source_age_seconds", "Age of the source's last good data.", _LABEL)
RESPONSE = gauge(
    "slurm_controller_response_seconds",
    "How long the last fetch took, failed ones included.",
    _LABEL,
)
MALFORMED = gauge(
    "slurm_source_malformed_records",
    "Records of the last good answer that could not be read; they are left out.",
    _LABEL,
)


class SourcesCollector(Collector):
    """Exports the state of every source that was asked at least once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Samples:
        """Read the states from memory."""
        out = Samples()
        for source in self._cluster.sources:
            if source.response is None:
                continue
            out.add(SUCCESS, int(source.failure is None), source.name)
            out.add(AGE, source.age, source.name)
            out.add(RESPONSE, source.response, source.name)
            reading = source.reading
            if reading is not None and isinstance(reading.data, Records):
                out.add(MALFORMED, reading.data.malformed, source.name)
        return out


SPEC = Declaration(
    name="slurm_sources",
    help="age, success and response time of every source",
    interval=5,
    options=NoOptions,
)
