"""One cluster as the agent sees it: its sources, shared by the collectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagewatch.slurm.events.cluster import ClusterEvents
from stagewatch.slurm.model import (
    Controller,
    Diagnostics,
    EndedJob,
    Job,
    License,
    Node,
    NodeEvent,
    Records,
    Reservation,
)
from stagewatch.slurm.source import Source
from stagewatch.slurm.transport.client import SlurmClient
from stagewatch.slurm.transport.text.job_detail import Claim


@dataclass(frozen=True, slots=True)
class Timing:
    """When the sources are asked, in seconds.

    What comes after the nodes keeps to the cycles in which they are not asked for, so that no cycle
    of 15 s puts more than 4 requests to the controller: 2 for the queue, and 2 for the nodes or 1
    or 2 for the others.
    """

    timeout: float = 10.0
    accounting_timeout: float = 30.0
    jobs: float = 15.0
    nodes: float = 30.0
    accounting: float = 60.0
    diagnostics: float = 30.0
    ping: float = 60.0
    reservations: float = 300.0
    licenses: float = 300.0

    def phase(self, cycle: int) -> float:
        """The beginning of an odd cycle, counted from 0: nodes are asked for in even ones."""
        return self.diagnostics / 2 * cycle


class Cluster:
    """The sources of a cluster, which its collectors share, and what was counted out of them."""

    def __init__(
        self,
        client: SlurmClient,
        timing: Timing,
        *,
        state_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._timing = timing
        self._clock = clock
        self._wall = wall
        self.events = ClusterEvents(state_file, wall=wall)
        self._sources: list[Source[Any]] = []
        self.jobs: Source[Records[Job]] = self._source("jobs", client.jobs, timing.jobs)
        self.nodes: Source[Records[Node]] = self._source("nodes", client.nodes, timing.nodes)
        self.diagnostics: Source[Diagnostics] = self._source(
            "diagnostics", client.diagnostics, timing.diagnostics, timing.phase(1)
        )
        self.ping: Source[tuple[Controller, ...]] = self._source(
            "ping", client.ping, timing.ping, timing.phase(1)
        )
        self.reservations: Source[Records[Reservation]] = self._source(
            "reservations", client.reservations, timing.reservations, timing.phase(3)
        )
        self.licenses: Source[Records[License]] = self._source(
            "licenses", client.licenses, timing.licenses, timing.phase(7)
        )
        self.ended_jobs: Source[Records[EndedJob]] = self._source(
            "accounting_jobs",
            lambda timeout: client.ended_jobs(timeout, self.events.window()),
            timing.accounting,
            timeout=timing.accounting_timeout,
        )
        self.node_events: Source[Records[NodeEvent]] = self._source(
            "accounting_nodes",
            lambda timeout: client.node_events(timeout, self.events.window()),
            timing.accounting,
            timeout=timing.accounting_timeout,
        )

    def gpu_claims(self) -> Source[Records[Claim]]:
        """Which job has which GPUs, once a minute between two pings; only if told to ask."""
        return self._source("gpu_indices", self._client.gpu_claims, 60.0, self._timing.phase(3))

    @property
    def sources(self) -> tuple[Source[Any], ...]:
        """All of them."""
        return tuple(self._sources)

    def close(self) -> None:
        """Give up what is under way, and save what was counted; after the last collection."""
        self._client.close()
        self.events.save(now=True)

    def _source(
        self,
        name: str,
        fetch: Callable[[float], Any],
        interval: float = 0.0,
        phase: float = 0.0,
        *,
        timeout: float | None = None,
    ) -> Source[Any]:
        source: Source[Any] = Source(
            name,
            fetch,
            timeout=timeout or self._timing.timeout,
            interval=interval,
            phase=phase,
            clock=self._clock,
            wall=self._wall,
        )
        self._sources.append(source)
        return source
