"""Collectors that read through jobs of the helper process."""

from __future__ import annotations

from abc import abstractmethod

from stagewatch.core.children.helper import Jobs, JobState
from stagewatch.core.collector import Collector
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples


class JobsCollector(Collector):
    """Shows the results of a collector's jobs, one job per configured item."""

    items = "job"
    """What is configured; for the message if nothing is."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def collect(self) -> Samples:
        """Read the results from memory. Raises `NoData` if nothing is configured."""
        if not self._jobs.names:
            raise NoData(f"no {self.items} is configured")
        out = Samples()
        for item, state in self._jobs.states().items():
            self.show(out, item, state)
        return out

    @abstractmethod
    def show(self, out: Samples, item: str, state: JobState) -> None:
        """Add the samples of one item."""
