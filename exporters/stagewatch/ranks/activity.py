"""What every rank's process is doing: its wait class, CPU time and memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import NoData
from stagewatch.core.exposition import Samples, counter, gauge
from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.ranks.directory import RankDirectory
from stagewatch.ranks.model import RANK_LABELS, SHOWN_SECONDS, Rank
from stagewatch.ranks.records import Life
from stagewatch.ranks.wait_class import (
    MIN_SAMPLES,
    WINDOW_SAMPLES,
    Sample,
    Sampler,
    WaitClass,
    classify,
)

INFO = gauge(
    "rl_rank_info",
    "1 for every rank of this node, with its process and its GPU.",
    (*RANK_LABELS, "local_rank", "pid", "uuid", "framework", "world_size"),
)
WAIT_CLASS = gauge(
    "rl_rank_wait_class",
    "1 for the class the rank's training thread (its main thread without a record) is in: spin, "
    "poll, parked, io, compute, stopped, traced, gone, unknown.",
    (*RANK_LABELS, "class"),
)
CPU = counter(
    "rl_rank_cpu_seconds_total",
    "CPU time of the rank's process, all threads, by mode (user, system).",
    (*RANK_LABELS, "mode"),
)
RUN_QUEUE = counter(
    "rl_rank_run_queue_seconds_total",
    "Time the rank's training thread was runnable but waited for a core; absent without schedstat.",
    RANK_LABELS,
)
RESIDENT = gauge(
    "rl_rank_resident_memory_bytes", "Resident memory of the rank's process.", RANK_LABELS
)
MAJOR_FAULTS = counter(
    "rl_rank_major_page_faults_total",
    "Times that the rank's process waited for a page from a disk: swapped out, or of a file.",
    RANK_LABELS,
)
SWAPPED = gauge(
    "rl_rank_swapped_memory_bytes",
    "Memory of the rank's process that is swapped out; absent on a kernel without swap.",
    RANK_LABELS,
)
STORAGE_WAIT = gauge(
    "rl_rank_storage_wait_seconds",
    "How long the rank's training thread has been in one uninterruptible sleep or storage wait, "
    "without running in between, as on a mount that does not answer; absent below 10 s.",
    RANK_LABELS,
)
STORAGE_WAIT_SECONDS = 10.0
"""Shorter waits are usual in a healthy job."""
DEVICE = gauge(
    "rl_rank_device_state",
    "1 for the state of the rank's GPU, on average over 10 s: works (its tensor cores or memory "
    "are active, or it draws as much power), moves (only bytes), spins (kernels run, but do "
    "neither), idle (no kernel runs), lost. Absent if unknown, as for a GPU of several processes.",
    (*RANK_LABELS, "state"),
)
PROGRESS_SECONDS = 3.0
"""A rank whose last mark is no older makes progress."""
PROGRESSING_EVERY_SECONDS = 3.5
"""How old the last look may be while all ranks make progress: a scrape every five seconds meets a
new one."""
SHOWN_FOR_SECONDS = 3.0
"""How long the last look is shown from the first one that fails."""
_Process = tuple[int, int | None]
_Look = tuple[ProcessStat, Sample]
"""A process, and the thread of it that trains."""


def _process(rank: Rank) -> _Process:
    return rank.pid, rank.start_ticks


class RanksCollector(Collector):
    """Samples the training thread of every rank and classifies how it waits."""

    shown_seconds = SHOWN_SECONDS

    def __init__(
        self,
        ranks: RankDirectory,
        proc: Procfs,
        *,
        clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        device: Callable[[str], str] = lambda uuid: "",
    ) -> None:
        """`device` returns what a GPU does, by its UUID."""
        self._ranks = ranks
        self._proc = proc
        self._clock = clock
        self._boot_clock = boot_clock
        self._device = device
        self._sampler = Sampler(proc)
        self._windows: dict[_Process, deque[Sample]] = {}
        self._looks: dict[_Process, _Look] = {}
        """The last look at each rank."""
        self._missed: dict[_Process, float] = {}
        """When the looks at a rank began to fail."""
        self._looked_at = float("-inf")
        self._shown = Samples()

    def collect(self) -> Samples:
        ranks = [rank for rank in self._ranks.look().ranks if rank.life is not Life.CLOSED]
        if not ranks:
            raise NoData("no rank on this node")
        now = self._clock()
        if now - self._looked_at < PROGRESSING_EVERY_SECONDS and self._all_go_on(ranks):
            return self._shown
        self._looked_at = now
        windows, self._windows = self._windows, {}
        known, self._looks = self._looks, {}
        missed, self._missed = self._missed, {}
        self._shown = out = Samples()
        looks = self._proc.each([(rank.pid, partial(self._look, rank)) for rank in ranks])
        samples = self._sampler.complete(
            [(rank, look[1] if look else None) for rank, look in zip(ranks, looks, strict=True)]
        )
        for rank, look, sample in zip(ranks, looks, samples, strict=True):
            key = _process(rank)
            window = self._windows[key] = windows.get(key) or deque(maxlen=WINDOW_SAMPLES)
            if look and sample:
                self._looks[key] = look[0], sample
                window.append(sample)
            elif key in known and now - missed.get(key, now) < SHOWN_FOR_SECONDS:
                self._looks[key] = known[key]  # a busy machine may be late with a look
                self._missed[key] = missed.get(key, now)
            self._one(out, rank, self._looks.get(key), window)
        return out

    def _all_go_on(self, ranks: Sequence[Rank]) -> bool:
        """Whether these are the ranks of the last look, which met all, and all make progress, so
        that their classes are known."""
        now = self._boot_clock()
        met = [*map(_process, ranks)] == [*self._looks] and not self._missed
        return met and all(
            rank.life is Life.ALIVE
            and rank.record is not None
            and now - rank.record.progress < PROGRESS_SECONDS
            and len(self._windows[_process(rank)]) >= MIN_SAMPLES
            for rank in ranks
        )

    def _look(self, rank: Rank) -> _Look | None:
        """One look at a rank; `None` if it is hidden from us or has just ended."""
        if rank.life is Life.GONE:
            return None
        process = self._proc.stat(rank.pid)
        sample = self._sampler.look(rank, self._clock())
        return None if process is None or sample is None else (process, sample)

    def _one(self, out: Samples, rank: Rank, look: _Look | None, window: deque[Sample]) -> None:
        key = rank.key
        out.add(
            INFO,
            1,
            *key,
            _text(rank.local_rank),
            rank.pid or "",
            rank.gpu,
            rank.framework,
            _text(rank.world_size),
        )
        if rank.life is Life.GONE:
            out.add(WAIT_CLASS, 1, *key, WaitClass.GONE.value)
            return
        if device := self._device(rank.gpu):
            out.add(DEVICE, 1, *key, device)
        if look is None:
            out.add(WAIT_CLASS, 1, *key, WaitClass.UNKNOWN.value)
            return
        process, sample = look
        out.add(WAIT_CLASS, 1, *key, classify(window).value)
        out.add(CPU, process.user_seconds, *key, "user")
        out.add(CPU, process.system_seconds, *key, "system")
        out.add(RESIDENT, process.resident_bytes, *key)
        out.add(SWAPPED, sample.swapped_bytes, *key)
        out.add(MAJOR_FAULTS, process.major_page_faults, *key)
        out.add(RUN_QUEUE, sample.queue_seconds, *key)
        if sample.storage_wait_seconds >= STORAGE_WAIT_SECONDS:
            out.add(STORAGE_WAIT, sample.storage_wait_seconds, *key)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


SPEC = Declaration(
    name="ranks",
    page="ranks",
    help="state, wait class, CPU and memory of every process that is a rank",
    interval=1.0,
    options=NoOptions,
)
