"""A source: one kind of data of one cluster, fetched on demand, its last good reading kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from stagewatch.core.errors import NoData, SourceError, StagewatchError

T = TypeVar("T")

MAX_BACKOFF = 60.0
"""Most seconds between two tries of a source that keeps failing."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """Data and when it was taken."""

    data: T
    taken: float
    """Monotonic seconds at the end of the fetch, for ages."""
    asked: float
    """Unix time at its beginning."""
    sequence: int


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a source does; `age` and `response` are in seconds."""

    name: str
    tried: bool
    success: bool
    age: float | None
    response: float | None
    failures: int
    """Failures since the agent's start."""
    error: str | None


class Source(Generic[T]):
    """Fetches one kind of data; refreshed by the one collector that owns it.

    Any thread may look at `reading` and `status`, which never wait for a fetch.  With an
    `interval` (in seconds) a refresh before its time gives the last reading again; `phase` puts
    off the first fetch, so that sources of one controller do not all ask at once.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[float], T],
        *,
        timeout: float,
        interval: float = 0.0,
        phase: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.reading: Reading[T] | None = None
        self.nothing = False
        """Whether the last answer was that there is nothing of the kind."""
        self._fetch = fetch
        self._interval = interval
        self._clock = clock
        self._due = clock() + phase
        self._wall = wall
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._not_before = 0.0
        self._error: StagewatchError | None = None
        self._failures = 0
        self._response: float | None = None
        self._tried = False

    def refresh(self) -> T:
        """Fetch, unless it is not time yet or the source is being left alone after failures.

        Raises `SourceError` (and while backing off, the same one again), `Stuck`, or `NoData`.
        """
        if not self._lock.acquire(blocking=False):
            raise SourceError(f"{self.name}: the fetch before this one is still under way")
        try:
            now = self._clock()
            if self._error is not None and now < self._not_before:
                raise self._error
            if self._error is None and now < self._due:
                if self.reading is None:
                    raise NoData(f"{self.name}: not asked for yet")
                return self.reading.data
            if self._interval:
                self._due += self._interval * (int((now - self._due) / self._interval) + 1)
            return self._try(now)
        finally:
            self._lock.release()

    def _try(self, started: float) -> T:
        asked = self._wall()
        try:
            data = self._fetch(self.timeout)
        except NoData:
            self._succeeded(started)
            self.reading = None
            self.nothing = True
            raise
        except StagewatchError as error:
            self._failed(error, started)
            raise
        self._succeeded(started)
        self.nothing = False
        sequence = self.reading.sequence + 1 if self.reading else 1
        self.reading = Reading(data, self._clock(), asked, sequence)
        return data

    def last(self) -> T:
        """The last good data, however old; never waits.

        Where there is none, raises what the last fetch failed with, or `NoData`.
        """
        reading = self.reading
        if reading is None:
            raise self._error or NoData(f"{self.name}: not asked for yet")
        return reading.data

    def recent(self, max_age: float) -> Reading[T] | None:
        """The last good reading, unless it is older than `max_age` seconds."""
        reading = self.reading
        if reading is None or self._clock() - reading.taken > max_age:
            return None
        return reading

    def status(self) -> SourceStatus:
        """How the source does now."""
        reading, error = self.reading, self._error
        return SourceStatus(
            name=self.name,
            tried=self._tried,
            success=error is None,
            age=None if reading is None else max(0.0, self._clock() - reading.taken),
            response=self._response,
            failures=self._failures,
            error=None if error is None else str(error),
        )

    def _succeeded(self, started: float) -> None:
        self._error = None
        self._in_a_row = 0
        self._response = self._clock() - started
        self._tried = True

    def _failed(self, error: StagewatchError, started: float) -> None:
        """The first failure is tried again at the next chance, later ones less and less often."""
        now = self._clock()
        self._in_a_row += 1
        self._failures += 1
        self._response = now - started
        pause = min(MAX_BACKOFF, self.timeout * (2 ** min(self._in_a_row, 10) - 2))
        self._not_before = now + pause
        self._error = error
        self._tried = True
