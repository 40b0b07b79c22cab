"""Runs collectors in the background, each at its own interval, and keeps their last texts.

Every collector has its own thread: a call that never returns blocks only that thread.  Others take
turns.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stagewatch.core.collector import Collector, Page
from stagewatch.core.deflate import deflated
from stagewatch.core.errors import NoData, StagewatchError, Stuck
from stagewatch.core.exposition import Renderer, Samples, counter, gauge
from stagewatch.core.shortage import SHORTAGES, is_shortage
from stagewatch.core.words import denied

log = logging.getLogger(__name__)

STALE_AFTER = 3
"""A snapshot older than this many intervals is dropped, never served frozen."""
MAX_SHARE = 0.2
"""Share of a core beyond which a collector is called at every other interval alone: what users
write, and its length, must not keep a scrape waiting for the interpreter."""
APART_SECONDS = 0.002
"""Time between the starts of two collectors: one takes a tenth less CPU on a core that another has
just woken.  All start within a look at the ranks that they share (`RankDirectory`)."""
TURN_SECONDS = 0.02
"""How long a collector waits for another one to end: as only one thread runs Python, two at a time
would hold each other up."""

_LABEL = ("collector",)
SUCCESS = gauge(
    "stagewatch_collector_success",
    "1 if the collector's last call succeeded, 0 if it failed or may not read the processes of "
    "other users; absent if it has no data.",
    _LABEL,
)
NO_DATA = gauge(
    "stagewatch_collector_no_data",
    "1 if this node has nothing that the collector could read.",
    _LABEL,
)
DURATION = gauge("stagewatch_collector_duration_seconds", "How long the last call took.", _LABEL)
CPU = counter(
    "stagewatch_collector_cpu_seconds_total",
    "CPU time of the collector's thread in the agent, rendering included; not of its children.",
    _LABEL,
)
LAST_SUCCESS = gauge(
    "stagewatch_collector_last_success_timestamp_seconds",
    "When the last successful call ended, as Unix time.",
    _LABEL,
)
STUCK = gauge(
    "stagewatch_collector_stuck_seconds",
    "How long the collector has been past its deadline without an answer; 0 when it is not.",
    _LABEL,
)
SKIPPED = counter(
    "stagewatch_collector_skipped_total",
    "Collections that were due while an earlier call was still running.",
    _LABEL,
)
INTERVAL = gauge("stagewatch_collector_interval_seconds", "Time between two collections.", _LABEL)
DROPPED = counter(
    "stagewatch_series_dropped_total",
    "Series left out because a metric had reached its limit of label sets.",
    _LABEL,
)


@dataclass(slots=True, eq=False)
class Snapshot:
    """The result of one collection as samples and text, with its time (monotonic seconds)."""

    samples: Samples
    text: bytes
    taken: float
    _deflated: bytes = b""

    def deflated(self) -> bytes:
        """The text as a part of a page in gzip, which the first scrape makes for all others."""
        self._deflated = self._deflated or deflated(self.text)
        return self._deflated


class Job:
    """One collector with its thread and its state.

    The job's thread writes the state and scrapes read it; every field is replaced as a whole, so
    readers need no lock.
    """

    def __init__(
        self,
        name: str,
        collector: Collector,
        interval: float,
        *,
        page: Page = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.page = page
        self.collector = collector
        self.interval = interval
        self.deadline = max(interval, 1.0)
        self.snapshot: Snapshot | None = None
        self.error: str | None = None
        self._said = False
        """Whether its failure has been logged."""
        self.no_data = False
        self.nothing = ""
        """Why there is no data."""
        self.duration: float | None = None
        self.last_success: float | None = None
        self.dropped = 0
        self.cpu_seconds = 0.0
        self._clock = clock
        self._renderer = Renderer()
        self._answered: float | None = None
        self._stuck_since: float | None = None
        self._call: tuple[float | None, int] = (None, 0)
        """When the call in flight began, and the ticks missed before it."""
        self._after = 0.0
        self._turn = threading.Lock()
        self._stopped = False
        self._wake = threading.Lock()  # a timed wait for an event takes longer
        self._wake.acquire()
        self._thread = threading.Thread(target=self._run, name=f"collect-{name}", daemon=True)

    def start(self, after: float = 0.0, turn: threading.Lock | None = None) -> None:
        """Start collecting, after so many seconds and then at every interval.

        Of the jobs that share the lock `turn`, one collects at a time.
        """
        self._after = after
        self._turn = turn or self._turn
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the current call; does not wait."""
        self._stopped = True
        with contextlib.suppress(RuntimeError):  # it was stopped before
            self._wake.release()

    def join(self, timeout: float) -> None:
        """Wait for the thread at most `timeout` seconds; a stuck one is left behind."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def let_go(self) -> None:
        """Close the collector, and only log what it raises."""
        try:
            self.collector.close()
        except Exception:
            log.warning("collector %s failed to close", self.name, exc_info=True)

    def fresh(self) -> Snapshot | None:
        """The last snapshot, unless it is too old."""
        snapshot = self.snapshot
        limit = max(STALE_AFTER * self.interval, self.collector.shown_seconds)
        return snapshot if snapshot and self._clock() - snapshot.taken <= limit else None

    def answering(self) -> bool:
        """Whether the collector has answered (with data or `NoData`) within 3 intervals."""
        answered = self._answered
        return answered is not None and self._clock() - answered <= STALE_AFTER * self.interval

    def stuck_seconds(self) -> float:
        """How far past its deadline the collector is, 0 when it is not."""
        since = self._stuck_since
        started, _ = self._call
        if since is None and started is not None:
            since = started + self.deadline
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def skipped(self) -> int:
        """Ticks missed so far, including those of the current call."""
        started, before = self._call
        return before + (0 if started is None else self._missed(started))

    def _missed(self, started: float) -> int:
        return int((self._clock() - started) / self.interval)

    def run_once(self) -> None:
        """Run one collection: call, render, keep; no exception leaves this method."""
        started = self._clock()
        self._call = started, self._call[1]
        try:
            samples = self.collector.collect()
            self.snapshot = Snapshot(samples, self._renderer.render(samples), self._clock())
            self.dropped += samples.dropped
            if samples.denied:
                self._stuck_since = None
                self._answered = self._clock()
                self._failed(denied(samples.denied))
            else:
                self._succeeded(no_data=False)
        except NoData as error:
            self.snapshot = None
            self.nothing = str(error)
            self._succeeded(no_data=True)
            log.debug("collector %s has no data: %s", self.name, error)
        except Stuck as error:
            if self._stuck_since is None:
                self._stuck_since = min(started + self.deadline, self._clock())
            self._failed(str(error))
        except StagewatchError as error:
            self._failed(str(error), shortage=is_shortage(error))
        except Exception as error:  # a defect in one collector must not end the others
            shortage = is_shortage(error)
            self._failed(f"{type(error).__name__}: {error}", unexpected=True, shortage=shortage)
        self.cpu_seconds = time.thread_time()
        self.duration = self._clock() - started
        self._call = None, self._call[1] + self._missed(started)

    def _succeeded(self, *, no_data: bool) -> None:
        if self._said:
            log.info("collector %s works again", self.name)
        self.error = None
        self._said = False
        self.no_data = no_data
        self._stuck_since = None
        self._answered = self._clock()
        self.last_success = time.time()

    def _failed(self, message: str, *, unexpected: bool = False, shortage: bool = False) -> None:
        # A collector is closed while it collects, so that a stuck one ends: no news then.
        if shortage:
            SHORTAGES.met(f"collector {self.name} failed: {message}")
        elif self.error != message and not self._stopped:
            log.warning("collector %s failed: %s", self.name, message, exc_info=unexpected)
            self._said = True
        self.error = message
        self.no_data = False

    def _run(self) -> None:
        self._wake.acquire(timeout=self._after)
        due = self._clock()
        while not self._stopped:
            before = self.cpu_seconds
            turn = self._turn.acquire(timeout=TURN_SECONDS)
            with contextlib.suppress(MemoryError):  # met again while it was told
                if not self._stopped:
                    self.run_once()
            if turn:
                self._turn.release()
            costly = self.cpu_seconds - before > MAX_SHARE * self.interval
            due += 2 * self.interval if costly else self.interval
            now = self._clock()
            if due <= now:  # missed ticks are skipped, the grid is kept
                due += self.interval * (int((now - due) / self.interval) + 1)
            self._wake.acquire(timeout=max(0.0, due - now))


class Runner:
    """All jobs of one agent."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = {job.name: job for job in jobs}

    def start(self) -> None:
        """Start every collector, those of one interval one after another."""
        turn = threading.Lock()
        for number, job in enumerate(sorted(self.jobs.values(), key=lambda job: job.interval)):
            job.start(number * APART_SECONDS, turn)

    def close(self, timeout: float = 2.0) -> None:
        """Stop every collector within `timeout` seconds in total; stuck ones are left behind."""
        limit = time.monotonic() + timeout
        closing = [
            threading.Thread(target=job.let_go, name=f"close-{job.name}", daemon=True)
            for job in self.jobs.values()
        ]
        for job in self.jobs.values():
            job.stop()
        for thread in closing:
            with contextlib.suppress(RuntimeError):  # the limit of threads: the process ends anyway
                thread.start()
        for thread in closing:
            if thread.ident is not None:
                thread.join(max(0.0, limit - time.monotonic()))
        for job in self.jobs.values():
            job.join(max(0.0, limit - time.monotonic()))

    def ready(self) -> bool:
        """Whether at least one collector answers."""
        return any(job.answering() for job in self.jobs.values())

    def health(self) -> Samples:
        """The agent's own metrics about its collectors, as of now."""
        out = Samples()
        for job in self.jobs.values():
            stuck = job.stuck_seconds()
            if job.no_data:
                out.add(NO_DATA, 1, job.name)
            elif job.duration is not None or stuck:
                out.add(SUCCESS, int(job.error is None and not stuck), job.name)
            out.add(DURATION, job.duration, job.name)
            out.add(CPU, job.cpu_seconds, job.name)
            out.add(LAST_SUCCESS, job.last_success, job.name)
            out.add(STUCK, stuck, job.name)
            out.add(SKIPPED, job.skipped(), job.name)
            out.add(INTERVAL, job.interval, job.name)
            out.add(DROPPED, job.dropped, job.name)
        return out
