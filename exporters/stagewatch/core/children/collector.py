"""Collectors that read through jobs of the helper process."""

from __future__ import annotations

from abc import abstractmethod

from stagewatch.core.children.helper import Jobs, JobState
from stagewatch.core.collector import Collector
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples
from stagewatch.core.runner import STALE_AFTER


def shown_for(every: float, deadline: float) -> float:
    """How long a result is valid, in seconds: three runs, and one that may hang."""
    return STALE_AFTER * every + deadline


class JobsCollector(Collector):
    """Shows the results of a collector's jobs, one job per configured item.

    A result is shown for `results_for` seconds and then dropped.
    """

    items = "job"
    """What is configured; for the message if nothing is."""

    def __init__(self, jobs: Jobs, *, results_for: float) -> None:
        self._jobs = jobs
        self.results_for = results_for

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
