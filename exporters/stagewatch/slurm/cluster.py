"""The cluster as the agent sees it: its sources, which the collectors share.

A source is one kind of data (the queue, the nodes, ...). The first collector that needs it when it
is due fetches it; the cluster keeps its last good reading.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import floor
from pathlib import Path
from typing import Generic, TypeVar

from stagewatch.core.config import option
from stagewatch.core.errors import NoData, SourceError, StagewatchError
from stagewatch.slurm.events.state import ClusterEvents
from stagewatch.slurm.model import Records
from stagewatch.slurm.transport.text import SlurmCli

T_co = TypeVar("T_co", covariant=True)

SOON = 10.0
"""Longest pause in seconds after the first failure of a source."""
MAX_BACKOFF = 60.0
"""Longest pause in seconds between two tries of a source that keeps failing."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """Data and its time."""

    data: T_co
    taken: float
    """Monotonic seconds at the end of the fetch, for ages."""
    asked: float
    """Unix time at its beginning."""
    sequence: int


def records_of(reading: Reading[Records[T_co]] | None) -> tuple[T_co, ...]:
    """The records of a reading; none if there is no reading."""
    return reading.data.items if reading else ()


class Source(Generic[T_co]):
    """One kind of data about the cluster, fetched by the first reader and shared by all.

    At most one fetch runs at a time. `interval` is the time between two fetches, in seconds;
    `phase` delays the first one, so that the sources do not all ask the controller at once. A
    source with an interval of 0 is always due. Only `refresh` waits.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[float], T_co],
        *,
        timeout: float,
        interval: float = 0.0,
        phase: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.reading: Reading[T_co] | None = None
        """The last good data, however old."""
        self._fetch = fetch
        self._timeout = timeout
        self._interval = interval
        self._clock = clock
        self._wall = wall
        self._due = clock() + phase
        self._ended = threading.Condition()
        self._under_way = False
        self._in_a_row = 0
        self._not_before = 0.0
        self._error: StagewatchError | None = NoData(f"{name}: not asked for yet")
        """What the last fetch raised."""
        self.response: float | None = None
        """How many seconds the last fetch took; `None` before the first one."""

    @property
    def nothing(self) -> bool:
        """Whether the last answer was `NoData`."""
        return self.response is not None and isinstance(self._error, NoData)

    def refresh(self) -> T_co:
        """Return the data; fetch it first if it is due.

        Waits for another thread's fetch, a little longer than it may take. Raises what the last
        fetch raised (`SourceError`, `Stuck` or `NoData`), also during the pause after a failure.
        """
        if self._begin(wait=True):
            self._try()
        reading, error = self.reading, self._error
        if error is not None or reading is None:
            raise error or NoData(f"{self.name}: not asked for yet")
        return reading.data

    def keep_fresh(self) -> Reading[T_co] | None:
        """Return the last good reading at once, and fetch in the background if it is due.

        For collectors that need the data only as an addition; a source without an interval is
        fetched only by `refresh`.
        """
        if self._interval and self._begin(wait=False):
            try:
                threading.Thread(target=self._try, name=f"fetch-{self.name}", daemon=True).start()
            except RuntimeError:  # no more threads for this user: the next reader tries again
                self._end()
        return self.reading

    def _begin(self, *, wait: bool) -> bool:
        """Decide whether the caller fetches; with `wait`, first wait for another thread's fetch."""
        with self._ended:
            if self._under_way:
                longest = 1.5 * self._timeout  # its end by its own timeout takes a moment
                if wait and not self._ended.wait_for(lambda: not self._under_way, longest):
                    raise SourceError(f"{self.name}: the fetch before this one is still under way")
                return False
            self._under_way = self._clock() >= (self._not_before if self._in_a_row else self._due)
            return self._under_way

    def _try(self) -> None:
        started, asked = self._clock(), self._wall()
        try:
            data = self._fetch(self._timeout)
        except NoData as error:
            self._answered(started, error)
            self.reading = None
        except StagewatchError as error:
            self._failed(started, error)
        else:
            sequence = self.reading.sequence + 1 if self.reading else 1
            self.reading = Reading(data, self._clock(), asked, sequence)
            self._answered(started, None)
        finally:
            self._end()

    def _end(self) -> None:
        with self._ended:
            self._under_way = False
            self._ended.notify_all()

    @property
    def age(self) -> float | None:
        """Seconds since the last good data came."""
        reading = self.reading
        return None if reading is None else max(0.0, self._clock() - reading.taken)

    @property
    def failure(self) -> StagewatchError | None:
        """What was wrong with the last fetch; having nothing is no failure."""
        return None if isinstance(self._error, NoData) else self._error

    def _answered(self, started: float, nothing: NoData | None) -> None:
        self._in_a_row = 0
        self._error = nothing
        self.response = self._clock() - started
        if self._interval:
            self._due += self._interval * (floor((started - self._due) / self._interval) + 1)

    def _failed(self, started: float, error: StagewatchError) -> None:
        """Schedule the next try: soon after the first failure, later after more failures."""
        now = self._clock()
        self._in_a_row += 1
        self._error = error
        self.response = now - started
        pause = min(MAX_BACKOFF, self._timeout * (2 ** min(self._in_a_row, 10) - 2))
        self._not_before = max(started + min(self._interval, SOON), now + pause)


TIMES = "how often Slurm is asked"
"""Heading in the agent's help."""


_time = partial(option, group=TIMES)


@dataclass(frozen=True)  # without slots, since the agent's options inherit from it
class Timing:
    """The intervals of the sources, in seconds.

    The sources after the nodes use the cycles without them, so that no cycle of 15 s sends more
    than 4 requests to the controller: 2 for the queue, and 2 for the nodes or 1 or 2 for the
    others.
    """

    timeout: float = _time(
        10.0,
        "timeout of a command or request to Slurm; less than MessageTimeout",
    )
    accounting_timeout: float = _time(
        30.0,
        "timeout of sacct and sacctmgr; a slow slurmdbd does no harm",
    )
    jobs_interval: float = _time(15.0, "time between two readings of the queue")
    nodes_interval: float = _time(30.0, "time between two readings of the nodes")
    accounting_interval: float = _time(60.0, "time between two readings of accounting")
    diagnostics_interval: float = _time(30.0, "time between two readings of sdiag")
    ping_interval: float = _time(60.0, "time between two pings of the controllers")

    @property
    def second_cycle(self) -> float:
        """The start of the first cycle that does not ask for the nodes."""
        return self.diagnostics_interval / 2


class Cluster:
    """The sources that the collectors share, and the events counted from them."""

    def __init__(
        self,
        client: SlurmCli,
        timing: Timing,
        *,
        state_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self._timing = timing
        self._clock = clock
        self._wall = wall
        self.events = ClusterEvents(state_file, wall=wall)
        self._sources: list[Source[object]] = []
        self.jobs = self._source("jobs", client.jobs, timing.jobs_interval)
        self.nodes = self._source("nodes", client.nodes, timing.nodes_interval)
        self.diagnostics = self._source(
            "diagnostics", client.diagnostics, timing.diagnostics_interval, timing.second_cycle
        )
        self.ping = self._source("ping", client.ping, timing.ping_interval, timing.second_cycle)
        self.ended_jobs = self._source(
            "accounting_jobs",
            lambda timeout: client.ended_jobs(timeout, self.events.window()),
            timing.accounting_interval,
            timeout=timing.accounting_timeout,
        )
        self.node_events = self._source(
            "accounting_nodes",
            lambda timeout: client.node_events(timeout, self.events.window()),
            timing.accounting_interval,
            timeout=timing.accounting_timeout,
        )

    @property
    def sources(self) -> tuple[Source[object], ...]:
        """All sources, in the order of their creation."""
        return tuple(self._sources)

    def close(self) -> None:
        """Cancel all running requests and save the counters, after the last collection."""
        self.client.close()
        self.events.save(now=True)

    def _source(
        self,
        name: str,
        fetch: Callable[[float], T_co],
        interval: float,
        phase: float = 0.0,
        *,
        timeout: float | None = None,
    ) -> Source[T_co]:
        source = Source(
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
