"""Classifies how the training thread of a rank waits, from a few samples of `/proc`.

The training thread is the one that marks progress in the stage record; without a record, it is the
main thread.  The class only describes: a rank at 100 % CPU may be compiling.  Whether anything is
wrong, the judge decides from the progress of the whole job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.model import Rank

MIN_SAMPLES = 5
WINDOW_SAMPLES = 10
"""Samples for a class; at one per second it follows a change within ten seconds."""

BUSY_PAGE_FAULTS = 100
"""A busy thread with more page faults per second of CPU time works, and does not poll."""
MAX_TASKS_KNOWN = 4096
STRAY_PAGE_FAULTS = 20
"""So few page faults in a window prove no work: a write after a fork, a reclaimed page."""

POLLS_PER_SECOND = 50.0
"""A thread with more voluntary switches waits by short sleeps."""
POLL_SECONDS = 0.001
"""The most CPU time of a polling thread between two switches.  A thread that shares the interpreter
gives it up every 5 ms (sys.setswitchinterval), and works all that time."""
YIELD_SHARE = 0.3
"""A busy thread with at least this share of its CPU time in the kernel waits by sched_yield or
poll: it stays runnable, so these calls are no voluntary switches."""
BUSY_CPU = 0.3
"""A thread that also sleeps is busy above this CPU use, in cores."""

_IO_CHANNEL = re.compile(
    r"nfs|rpc_|fuse_|request_wait_answer|io_schedule|wait_on_page|folio_wait|blk_|jbd2|xfs_"
    r"|lustre|cl_sync_io|ceph_|cxiWait"
)


class WaitClass(str, Enum):
    """How a thread waits, if it does."""

    SPIN = "spin"
    """Busy, without progress and without new memory: busy-polling, or computing in place."""
    POLL = "poll"
    """Waiting by many short sleeps or yields without work, as MPI and NCCL's proxies do."""
    COMPUTE = "compute"
    """Busy, and progressing or taking new memory."""
    PARKED = "parked"
    """Asleep on a lock, an event or a timer, using next to no CPU."""
    IO = "io"
    """In uninterruptible sleep or in a storage wait."""
    STOPPED = "stopped"
    """Stopped by a signal."""
    TRACED = "traced"
    """Held by a debugger."""
    GONE = "gone"
    """The process has ended."""
    UNKNOWN = "unknown"
    """Too few samples, or no clear picture."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a thread."""

    time: float
    """Monotonic seconds."""
    state: str
    """The letter of `/proc/<pid>/stat`."""
    channel: str
    """The kernel function in which it sleeps; empty while it runs or if that may not be read."""
    run_seconds: float
    voluntary: int
    involuntary: int
    marks: int | None
    """Progress marks of the rank so far; `None` without a stage record."""
    page_faults: int = 0
    """Page faults so far: a compiler or a tokenizer takes new memory all the time, polling none."""
    queue_seconds: float | None = None
    """Time spent runnable but waiting for a core; `None` on a kernel without schedstat."""
    system_seconds: float = 0.0
    """The part of `run_seconds` in the kernel."""
    swapped_bytes: int | None = None
    """Memory of the whole process that is swapped out; `None` on a kernel without swap."""
    task: int = 0
    """The number of the thread."""
    asleep_since: float | None = None
    """If it is in an uninterruptible sleep or a storage wait: when it was first seen there, without
    having run since.  Monotonic seconds."""

    @property
    def storage_wait_seconds(self) -> float:
        """How long it has been in one uninterruptible sleep or storage wait."""
        return 0.0 if self.asleep_since is None else self.time - self.asleep_since


class Sampler:
    """Takes samples of training threads; remembers their numbers in this PID namespace."""

    def __init__(self, proc: Procfs) -> None:
        self._proc = proc
        self._tasks: dict[tuple[int, int | None, int], int | None] = {}
        self._asleep: dict[tuple[int, int | None], Sample] = {}
        """The last look at each rank that sleeps."""

    def take(self, rank: Rank, now: float) -> Sample | None:
        """A complete sample of the training thread; `None` if it is gone or hidden."""
        [sample] = self.complete([(rank, self.look(rank, now))])
        return sample

    def look(self, rank: Rank, now: float) -> Sample | None:
        """A sample without the kernel function, which `complete` reads for all ranks at once."""
        lane = rank.record.training if rank.record else None
        task = self._task(rank, lane.thread) if rank.record and lane else rank.pid
        stat = self._proc.stat(rank.pid, task)
        if stat is None and task != rank.pid:  # that thread has ended
            task = rank.pid
            stat = self._proc.stat(rank.pid, task)
        scheduling = self._proc.scheduling(rank.pid, task)
        if stat is None or scheduling is None:
            return None
        return Sample(
            time=now,
            state=stat.state,
            channel="",
            run_seconds=stat.user_seconds + stat.system_seconds,
            voluntary=scheduling.voluntary,
            involuntary=scheduling.involuntary,
            marks=lane.marks if lane else None,
            page_faults=stat.page_faults,
            queue_seconds=scheduling.queue_seconds,
            system_seconds=stat.system_seconds,
            swapped_bytes=scheduling.swapped_bytes,
            task=task,
        )

    def complete(self, looks: Sequence[tuple[Rank, Sample | None]]) -> list[Sample | None]:
        """The samples with the kernel function in which each thread sleeps, and since when.

        A thread that has not run since the last sample still sleeps in the same function.
        """
        asleep = [
            (rank.pid, sample.task)
            for rank, sample in looks
            if sample and sample.state != "R" and not self._channel_before(rank, sample)
        ]
        channels = self._proc.wait_channels(asleep)
        return [
            sample and self._completed(rank, sample, channels.get(sample.task, ""))
            for rank, sample in looks
        ]

    def _completed(self, rank: Rank, sample: Sample, channel: str) -> Sample:
        before = self._before(rank, sample)
        channel = (before.channel if before else "") or channel
        since = None
        if sample.state == "D" or _is_storage(channel):
            since = before.asleep_since if before else None
            since = sample.time if since is None else since
        sample = replace(sample, channel=channel, asleep_since=since)
        if len(self._asleep) >= MAX_TASKS_KNOWN:
            self._asleep.clear()
        key = rank.pid, rank.start_ticks
        self._asleep.pop(key, None)
        if sample.state != "R":
            self._asleep[key] = sample
        return sample

    def _channel_before(self, rank: Rank, sample: Sample) -> str:
        before = self._before(rank, sample)
        return before.channel if before else ""

    def _before(self, rank: Rank, sample: Sample) -> Sample | None:
        """The last sample of the same sleep; None if there is none."""
        before = self._asleep.get((rank.pid, rank.start_ticks))
        return before if before and _has_not_run(before, sample) else None

    def _task(self, rank: Rank, thread: int) -> int:
        if rank.record is None or rank.record.pid_namespace == self._proc.pid_namespace():
            return thread
        key = rank.pid, rank.start_ticks, thread
        if key not in self._tasks:
            if len(self._tasks) >= MAX_TASKS_KNOWN:
                self._tasks.clear()
            self._tasks[key] = self._proc.task_named(rank.pid, thread)
        return self._tasks[key] or rank.pid


@lru_cache(maxsize=256)
def _is_storage(channel: str) -> bool:
    return _IO_CHANNEL.search(channel) is not None


def _has_not_run(before: Sample, after: Sample) -> bool:
    """Whether a thread has not run between two samples; the kernel's detector of hung tasks uses
    the same criterion (kernel/hung_task.c)."""
    return (before.task, before.voluntary, before.involuntary) == (
        after.task,
        after.voluntary,
        after.involuntary,
    )


def classify(samples: Sequence[Sample]) -> WaitClass:
    """The wait class by a window of samples, the oldest first.

    Samples of another thread than the last one do not count.
    """
    samples = [sample for sample in samples if sample.task == samples[-1].task]
    if samples and samples[-1].state in "ZX":
        return WaitClass.GONE
    if len(samples) < MIN_SAMPLES:
        return WaitClass.UNKNOWN
    states = "".join([sample.state for sample in samples])

    def share(letters: str) -> float:
        return sum(map(states.count, letters)) / len(states)

    first, last = samples[0], samples[-1]
    seconds = max(last.time - first.time, 1e-6)
    cpu_seconds = last.run_seconds - first.run_seconds
    cpu = cpu_seconds / seconds
    stored = sum([_is_storage(sample.channel) for sample in samples]) / len(samples)
    for letter, held in (("t", WaitClass.TRACED), ("T", WaitClass.STOPPED)):
        if states[-2:] == letter * 2 or share(letter) >= 0.8:
            return held  # two looks are enough: nothing gets into this state by itself
    if share("D") >= 0.8 or stored >= 0.8:
        return WaitClass.IO
    progressed = last.marks is not None and last.marks != first.marks
    faults = last.page_faults - first.page_faults
    at_work = progressed or faults > max(STRAY_PAGE_FAULTS, BUSY_PAGE_FAULTS * cpu_seconds)
    sleeps = last.voluntary - first.voluntary
    polls = sleeps > POLLS_PER_SECOND * seconds and cpu_seconds < POLL_SECONDS * sleeps
    if share("R") >= 0.9 or (share("RS") >= 0.8 and cpu >= BUSY_CPU):
        yields = last.system_seconds - first.system_seconds >= YIELD_SHARE * cpu_seconds > 0
        if at_work:
            return WaitClass.COMPUTE
        return WaitClass.POLL if polls or yields else WaitClass.SPIN
    if share("RS") >= 0.8 and polls and not at_work:
        return WaitClass.POLL
    if share("S") >= 0.8 and cpu < 0.05:
        return WaitClass.PARKED
    if share("D") >= 0.5 or stored >= 0.5:
        return WaitClass.IO
    return WaitClass.UNKNOWN
