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
from stagewatch.core.state_file import past, real, text, whole
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

    def dump(self) -> dict[str, Any]:
        """What the state file keeps."""
        return {"bounds": list(self.bounds), "counts": self.counts, "sum": self.sum}

    @classmethod
    def load(cls, saved: Mapping[str, Any], bounds: tuple[float, ...]) -> GrowingHistogram:
        """Load from the state file; empty if another version wrote it with other bounds."""
        counts = [whole(number) for number in saved["counts"]]
        if tuple(saved["bounds"]) != bounds or len(counts) != len(bounds) + 1:
            return cls(bounds)
        return cls(bounds, counts, real(saved["sum"]))


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
    last_seen: float
    requeued: bool


class JobLedger:
    """Counts how runs end; used by one thread.  All times are Unix seconds."""

    def __init__(self, now: float) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()
        """Runs by partition and state."""
        self.requeues: Counter[str] = Counter()
        """By partition."""
        self.wait: dict[str, GrowingHistogram] = {}
        """Eligible to start, by partition."""
        self.run: dict[str, GrowingHistogram] = {}
        """Start to end, by partition."""
        self.accounting: bool | None = None
        """Whether there is accounting; `None` until it was asked."""
        self._oldest = float(int(now))  # Slurm's times are whole seconds
        self._watermark = now
        self._last_poll = now
        self._seen: dict[Run, int] = {}
        self._live: dict[Run, _Live] = {}
        self._awaited: dict[Run, _Awaited] = {}
        self._restarts: dict[int, int] | None = None
        self.window_start = now - OVERLAP
        """From when on accounting is to be read; may be looked at from any thread."""

    @property
    def unaccounted(self) -> int:
        """The number of jobs that left the queue and have no record in accounting yet."""
        return sum(awaited.tasks for awaited in self._awaited.values())

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
            run: was for run, was in self._live.items() if run not in live and run not in self._seen
        }
        ids = {job_id for job_id, _ in left}
        latest = {job.job_id: job.submit or 0 for job in jobs if job.job_id in ids}
        for run, was in left.items():
            requeued = latest.get(run[0], 0) > run[1]
            self._awaited[run] = _Awaited(was.partition, was.tasks, self._last_poll, requeued)
        self._live = live
        self._restarts = restarts
        self._last_poll = now
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
            self._watermark = max(self._watermark, asked)
        self._settle(asked)

    def no_accounting(self, now: float) -> None:
        """Note that there is no accounting: a run that left without a final state stays unknown."""
        self.accounting = False
        self._watermark = now
        self._settle(now)

    def _count_restarts(self, job: Job) -> None:
        if self._restarts is not None:  # restarts from before the first snapshot do not count
            self.requeues[job.partition] += max(0, job.restarts - self._restarts.get(job.job_id, 0))

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
        known = {job_id for job_id, _ in chain(self._live, self._seen)}
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
        self._awaited.pop(run, None)
        if run in self._seen or job.end < self._oldest:
            return
        self._seen[run] = job.end
        self.ended[job.partition, job.state] += job.tasks
        if job.start is not None:
            ready = job.eligible or job.submit
            _histogram(self.wait, job.partition, WAIT_BOUNDS).observe(max(0, job.start - ready))
            _histogram(self.run, job.partition, RUN_BOUNDS).observe(max(0, job.end - job.start))

    def _settle(self, now: float) -> None:
        """Call runs without a record UNKNOWN after a day, and forget old ones."""
        for run, awaited in tuple(self._awaited.items()):
            if self.accounting is False:
                state = "REQUEUED" if awaited.requeued else "UNKNOWN"
            elif now - awaited.last_seen > GIVE_UP:
                state = "UNKNOWN"
            else:
                continue
            del self._awaited[run]
            self._seen[run] = int(awaited.last_seen)
            self.ended[awaited.partition, state] += awaited.tasks
        awaited_since = [awaited.last_seen for awaited in self._awaited.values()]
        self.window_start = max(min([self._watermark, *awaited_since]) - OVERLAP, now - FARTHEST)
        oldest = self.window_start - OVERLAP
        if oldest > self._oldest:
            self._oldest = oldest
            self._seen = {run: end for run, end in self._seen.items() if end >= oldest}

    def dump(self) -> dict[str, Any]:
        """What the state file keeps."""
        return {
            "ended": [[*key, number] for key, number in self.ended.items()],
            "requeues": dict(self.requeues),
            "wait": {name: histogram.dump() for name, histogram in self.wait.items()},
            "run": {name: histogram.dump() for name, histogram in self.run.items()},
            "oldest": self._oldest,
            "watermark": self._watermark,
            "last_poll": self._last_poll,
            "seen": [[*run, end] for run, end in self._seen.items()],
            "awaited": [[*run, *awaited] for run, awaited in self._awaited.items()],
            "restarts": list((self._restarts or {}).items()),
        }

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> JobLedger:
        """Load the content.  Raises one of `core.state_file.BROKEN`."""
        ledger = cls(past(saved["watermark"]))  # accounting is asked for what came since
        ledger.ended.update({(text(p), text(s)): whole(n) for p, s, n in saved["ended"]})
        ledger.requeues.update({text(p): whole(n) for p, n in saved["requeues"].items()})
        for name, kept in saved["wait"].items():
            ledger.wait[text(name)] = GrowingHistogram.load(kept, WAIT_BOUNDS)
        for name, kept in saved["run"].items():
            ledger.run[text(name)] = GrowingHistogram.load(kept, RUN_BOUNDS)
        ledger._oldest = past(saved["oldest"])
        ledger._last_poll = past(saved["last_poll"])
        ledger._seen = {
            (whole(job), whole(submit)): whole(end) for job, submit, end in saved["seen"]
        }
        for job, submit, partition, tasks, last_seen, requeued in saved["awaited"]:
            awaited = _Awaited(text(partition), whole(tasks), past(last_seen), bool(requeued))
            ledger._awaited[whole(job), whole(submit)] = awaited
        ledger._restarts = {whole(job): whole(number) for job, number in saved["restarts"]}
        return ledger


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
