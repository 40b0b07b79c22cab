"""Classifies how a rank's main thread waits, from a few samples of `/proc`.

The class describes and never accuses: a rank at 100 % CPU may be compiling.  Whether anything is
wrong follows from progress over the whole job, in the recording rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.model import Rank

MIN_SAMPLES = 5
WINDOW_SAMPLES = 10
"""Samples that a class is judged by; at one a second it follows a change within ten seconds."""

BUSY_PAGE_FAULTS = 100
"""Page faults per second of CPU time above which a busy thread is at work and does not poll."""
STRAY_PAGE_FAULTS = 20
"""Page faults in a whole window that prove nothing: a write after a fork, a reclaimed page."""

_IO_CHANNEL = re.compile(
    r"nfs|rpc_|fuse_|request_wait_answer|io_schedule|wait_on_page|folio_wait|blk_|jbd2|xfs_"
    r"|lustre|cl_sync_io|ceph_|cxiWait"
)


class WaitClass(str, Enum):
    """How a thread waits, or that it does not."""

    SPIN = "spin"
    """Always runnable, never gives the core up, and no progress: busy-polling or computing long."""
    COMPUTE = "compute"
    """Runnable, and progressing, touching new memory, or at times giving the core up."""
    PARKED = "parked"
    """Asleep on a lock, an event or a timer, using next to no CPU."""
    POLL = "poll"
    """Waits by short sleeps or yields, as MPI and NCCL proxies do: switches, no new memory."""
    IO = "io"
    """In uninterruptible sleep or in a storage wait."""
    STOPPED = "stopped"
    """Stopped by a signal."""
    TRACED = "traced"
    """Held by a debugger: somebody is at work on it."""
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
    """The kernel function it sleeps in; empty while it runs or where it may not be read."""
    run_seconds: float
    voluntary: int
    involuntary: int
    marks: int | None
    """Progress marks of the rank so far; `None` without a stage record."""
    page_faults: int = 0
    """So far.  A compiler or a tokenizer takes new memory all the time, a busy-poller none."""
    queue_seconds: float | None = None
    """Time spent runnable but waiting for a core; `None` on a kernel without schedstat."""


def take_sample(rank: Rank, proc: Procfs, now: float) -> Sample | None:
    """One look at a rank's main thread; `None` if it is gone or hidden."""
    main = proc.stat(rank.pid, rank.pid)
    scheduling = proc.scheduling(rank.pid, rank.pid)
    if main is None or scheduling is None:
        return None
    lane = rank.record.training if rank.record else None
    return Sample(
        time=now,
        state=main.state,
        channel=proc.wait_channel(rank.pid, rank.pid),
        run_seconds=main.user_seconds + main.system_seconds,
        voluntary=scheduling.voluntary,
        involuntary=scheduling.involuntary,
        marks=lane.marks if lane else None,
        page_faults=main.page_faults,
        queue_seconds=scheduling.queue_seconds,
    )


def classify(samples: Sequence[Sample]) -> WaitClass:
    """The class that a window of samples, oldest first, indicates."""
    if samples and samples[-1].state in "ZX":
        return WaitClass.GONE
    if len(samples) < MIN_SAMPLES:
        return WaitClass.UNKNOWN
    states = [sample.state for sample in samples]

    def share(letters: str) -> float:
        return sum(state in letters for state in states) / len(states)

    first, last = samples[0], samples[-1]
    seconds = max(last.time - first.time, 1e-6)
    cpu_seconds = last.run_seconds - first.run_seconds
    cpu = cpu_seconds / seconds
    stored = sum(bool(_IO_CHANNEL.search(sample.channel)) for sample in samples) / len(samples)
    for letter, held in (("t", WaitClass.TRACED), ("T", WaitClass.STOPPED)):
        if states[-2:] == [letter] * 2 or share(letter) >= 0.8:
            return held  # two looks will do: nothing gets into this state by itself
    if share("D") >= 0.8 or stored >= 0.8:
        return WaitClass.IO
    if share("R") >= 0.9:
        progressed = last.marks is not None and last.marks != first.marks
        # A spinner may share its interpreter with a thread that wakes up now and then.
        gave_up = last.voluntary - first.voluntary > 20 * seconds
        faults = last.page_faults - first.page_faults
        at_work = faults > max(STRAY_PAGE_FAULTS, BUSY_PAGE_FAULTS * cpu_seconds)
        return WaitClass.COMPUTE if progressed or gave_up or at_work else WaitClass.SPIN
    if share("S") >= 0.8 and cpu < 0.05:
        return WaitClass.PARKED
    if share("D") >= 0.5 or stored >= 0.5:
        return WaitClass.IO
    if share("RS") >= 0.8 and cpu >= 0.3:
        return WaitClass.COMPUTE
    return WaitClass.UNKNOWN
