"""Counts how jobs end, every run exactly once, from the queue and from accounting.

The id of a job and the time when it was submitted or requeued identify a run in both.  The queue
shows a job's final state for a while after its end (MinJobAge).  Accounting keeps every run, also
those of requeued jobs, but may be late or down.  The first of the two counts, the second is
ignored.  A run that vanished from the queue waits for its record in accounting, for a day at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from stagewatch.core.exposition import Histogram
from stagewatch.core.state_file import Past, decode, encode
from stagewatch.slurm.model import EndedJob, Job
from stagewatch.slurm.notation import ENDED_STATES

WAIT_BOUNDS = (1.0, 10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0, 259200.0)
"""Seconds; a pending alert looks at 30 minutes."""

RUN_BOUNDS = (10.0, 60.0, 300.0, 900.0, 3600.0, 10800.0, 21600.0, 43200.0, 86400.0, 259200.0)


@dataclass(slots=True)
class GrowingHistogram:
    """Counts of values by upper bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def exposed(self) -> Histogram:
        """The histogram as samples."""
        cumulative, total = [], 0
        for number in self.counts[:-1]:
            total += number
            cumulative.append(total)
        return Histogram(self.bounds, tuple(cumulative), total + self.counts[-1], self.sum)

    def fits(self, bounds: tuple[float, ...]) -> bool:
        """Whether it has these bounds; another version may have kept it with others."""
        return self.bounds == bounds and len(self.counts) == len(bounds) + 1


OVERLAP = 600.0
"""Seconds that accounting is read again, for records that come late or under another clock."""
GIVE_UP = 86400.0
"""Seconds after which a run without a record is called UNKNOWN."""
FARTHEST = 7 * 86400.0
"""Most seconds that accounting is asked back for."""

Run = tuple[int, int]
"""Job id and submit time."""


class _Live(NamedTuple):
    partition: str
    tasks: int


class _Awaited(NamedTuple):
    """A run that has left the queue and has no record in accounting yet."""

    partition: str
    tasks: int
    last_seen: Past
    requeued: bool


@dataclass(slots=True)
class JobCounts:
    """What the state file keeps."""

    oldest: Past
    watermark: Past
    last_poll: Past
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    requeues: Counter[str] = field(default_factory=Counter)
    wait: dict[str, GrowingHistogram] = field(default_factory=dict)
    run: dict[str, GrowingHistogram] = field(default_factory=dict)
    seen: dict[Run, int] = field(default_factory=dict)
    awaited: dict[Run, _Awaited] = field(default_factory=dict)
    restarts: dict[int, int] | None = None


class JobLedger:
    """Counts how runs end; used by one thread.  All times are Unix seconds."""

    def __init__(self, now: float, kept: JobCounts | None = None) -> None:
        # Slurm's times are whole seconds.
        self._kept = kept or JobCounts(float(int(now)), now, now)
        self.ended = self._kept.ended
        """Runs by partition and state."""
        self.requeues = self._kept.requeues
        """By partition."""
        self.wait = self._kept.wait
        """Eligible to start, by partition."""
        self.run = self._kept.run
        """Start to end, by partition."""
        self.accounting: bool | None = None
        """Whether there is accounting; `None` until it was asked."""
        self._live: dict[Run, _Live] = {}
        self.window_start = now - OVERLAP
        """From when on accounting is to be read; may be looked at from any thread."""

    @property
    def unaccounted(self) -> int:
        """The number of jobs that left the queue and have no record in accounting yet."""
        return sum(awaited.tasks for awaited in self._kept.awaited.values())

    def observe_queue(self, jobs: Iterable[Job], now: float) -> None:
        """Count the ends and requeues that a snapshot of the queue shows."""
        jobs = tuple(jobs)
        live: dict[Run, _Live] = {}
        restarts: dict[int, int] = {}
        ended: dict[Run, EndedJob] = {}
        for job in jobs:
            submit = job.submit or 0
            if job.restarts:
                self._count_restarts(job)
                restarts[job.job_id] = job.restarts
            if job.state in ENDED_STATES:
                _add_ended(ended, job)
            else:
                was = live.get((job.job_id, submit))
                tasks = job.tasks + (was.tasks if was else 0)
                live[job.job_id, submit] = _Live(job.partition, tasks)
        self._count_cancelled(jobs, live, ended)
        for record in ended.values():
            self._end(record)
        left = {
            run: was
            for run, was in self._live.items()
            if run not in live and run not in self._kept.seen
        }
        ids = {job_id for job_id, _ in left}
        latest = {job.job_id: job.submit or 0 for job in jobs if job.job_id in ids}
        for run, was in left.items():
            requeued = latest.get(run[0], 0) > run[1]
            self._kept.awaited[run] = _Awaited(
                was.partition, was.tasks, self._kept.last_poll, requeued
            )
        self._live = live
        self._kept.restarts = restarts
        self._kept.last_poll = now
        self._settle(now)

    def observe_accounting(
        self, records: Iterable[EndedJob], *, asked: float, complete: bool
    ) -> None:
        """Count the runs that accounting has recorded.

        `complete`: the controller has sent everything to slurmdbd.  If it has not, the next query
        starts at the same time as this one.
        """
        self.accounting = True
        for record in records:
            live = self._live.get((record.job_id, record.submit))
            # the queue knows more about an array; it comes next
            if live is None or live.tasks == 1:
                self._end(record)
        if complete:
            self._kept.watermark = max(self._kept.watermark, asked)
        self._settle(asked)

    def no_accounting(self, now: float) -> None:
        """Note that there is no accounting: a run that left without a final state stays unknown."""
        self.accounting = False
        self._kept.watermark = now
        self._settle(now)

    def _count_restarts(self, job: Job) -> None:
        if self._kept.restarts is not None:  # restarts from before the first snapshot do not count
            self.requeues[job.partition] += max(
                0, job.restarts - self._kept.restarts.get(job.job_id, 0)
            )

    def _count_cancelled(
        self, jobs: tuple[Job, ...], live: Mapping[Run, _Live], ended: Mapping[Run, EndedJob]
    ) -> None:
        """Count the tasks of pending arrays that were cancelled without a record of their own.

        slurmctld takes cancelled tasks off the list of an array (`job_str_signal` in
        src/slurmctld/job_mgr.c).  After `scancel ID` the array's record still names them; after
        `scancel ID_[0-49]`, `--user`, `--name` and `--partition` it does not.  Tasks that start or
        are held leave the list too, but have records of their own.
        """
        arrays = {run: was for run, was in self._live.items() if was.tasks > 1}
        if not arrays:
            return
        known = {job_id for job_id, _ in chain(self._live, self._kept.seen)}
        begun = Counter[int | None]()
        for job in jobs:
            if job.job_id not in known:
                begun[job.array_job_id] += job.tasks
        for run, was in arrays.items():
            if run in live or run in ended:
                left = live[run].tasks if run in live else ended[run].tasks
                self.ended[was.partition, "CANCELLED"] += max(0, was.tasks - left - begun[run[0]])

    def _end(self, job: EndedJob) -> None:
        run = (job.job_id, job.submit)
        self._kept.awaited.pop(run, None)
        if run in self._kept.seen or job.end < self._kept.oldest:
            return
        self._kept.seen[run] = job.end
        self.ended[job.partition, job.state] += job.tasks
        if job.start is not None:
            ready = job.eligible or job.submit
            _histogram(self.wait, job.partition, WAIT_BOUNDS).observe(max(0, job.start - ready))
            _histogram(self.run, job.partition, RUN_BOUNDS).observe(max(0, job.end - job.start))

    def _settle(self, now: float) -> None:
        """Call runs without a record UNKNOWN after a day, and forget old ones."""
        for run, awaited in tuple(self._kept.awaited.items()):
            if self.accounting is False:
                state = "REQUEUED" if awaited.requeued else "UNKNOWN"
            elif now - awaited.last_seen > GIVE_UP:
                state = "UNKNOWN"
            else:
                continue
            del self._kept.awaited[run]
            self._kept.seen[run] = int(awaited.last_seen)
            self.ended[awaited.partition, state] += awaited.tasks
        awaited_since = [awaited.last_seen for awaited in self._kept.awaited.values()]
        self.window_start = max(
            min([self._kept.watermark, *awaited_since]) - OVERLAP, now - FARTHEST
        )
        oldest = self.window_start - OVERLAP
        if oldest > self._kept.oldest:
            self._kept.oldest = oldest
            self._kept.seen = {run: end for run, end in self._kept.seen.items() if end >= oldest}

    def dump(self) -> dict[str, Any]:
        """The content of the state file."""
        content: dict[str, Any] = encode(self._kept)
        return content

    @classmethod
    def load(cls, saved: Any) -> JobLedger:
        """Load the content.  Raises one of `core.state_file.BROKEN`."""
        kept: JobCounts = decode(JobCounts, saved)
        kept.wait = {name: one for name, one in kept.wait.items() if one.fits(WAIT_BOUNDS)}
        kept.run = {name: one for name, one in kept.run.items() if one.fits(RUN_BOUNDS)}
        return cls(kept.watermark, kept)  # accounting is asked for what came since


def _histogram(
    histograms: dict[str, GrowingHistogram], partition: str, bounds: tuple[float, ...]
) -> GrowingHistogram:
    return histograms.setdefault(partition, GrowingHistogram(bounds))


def _add_ended(ended: dict[Run, EndedJob], job: Job) -> None:
    """Add a run that the queue shows in its final state, if its end is known.

    Tasks of an array that were cancelled together are one run, however many records show them.
    """
    if job.end is None:
        return
    run = (job.job_id, job.submit or 0)
    before = ended.get(run)
    ended[run] = EndedJob(
        job_id=job.job_id,
        tasks=job.tasks + (before.tasks if before else 0),
        state=job.state,
        partition=job.partition,
        submit=job.submit or 0,
        eligible=job.eligible,
        start=job.start if job.node_list else None,
        end=job.end,
    )
