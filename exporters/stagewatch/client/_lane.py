"""One thread's part of the record: its open stages, its progress and its totals.

Only the owning thread calls its methods.  All stores go into the mapping: no system call, no lock.

`heartbeat`, `enter` and `leave` run in the trainer's loop and the work of the interpreter counts,
so they do little.  They read the clock once, for the record and the ring.  Python adds to its own
integers, kept in `Counts`, faster than it reads the mapping.  A kept offset saves additions.  One
call of `struct` stores several words, with packed bits if a whole word would need arithmetic.  Open
stages and free frames are linked lists: a change takes no call, so no signal handler can run in
between.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from struct import Struct

from stagewatch.record import (
    APART,
    BATCHES_AT,
    BUCKET_UNIT_NS,
    BUCKETS,
    E_ENTER,
    E_FAILURE,
    E_LEAVE,
    E_STEP,
    FRAME_WORDS,
    FRAMES,
    GAP_MEMORY,
    H_DROPPED,
    L_DEVICE,
    L_FRAMES,
    L_MARKS,
    L_PROGRESS,
    L_STEP,
    L_THREAD,
    L_TOTALS,
    LANE_SHIFT,
    LANE_WORDS,
    LANES_AT,
    STEP_SIZE,
    STEPS,
    STEPS_AT,
    SUBSTAGE_SIZE,
    T_DURATION_SUM,
    T_DURATIONS,
    T_GAP_FIRST,
    T_GAP_LONGEST,
    T_GAP_RECENT,
    T_GAP_SUM,
    T_GAPS,
    T_WAITED,
    THREAD_EVENT,
    TOTAL_WORDS,
    WORD,
)
from stagewatch.stages import IDLE, OUTSIDE_STEPS, STAGES

_read_clock = time.clock_gettime_ns
_BOOT = time.CLOCK_BOOTTIME

_pack_event = Struct(THREAD_EVENT).pack_into
"""Clears an event's place, then stores its words in their order."""
_pack_frame = Struct(f"@qqq8x{SUBSTAGE_SIZE}s").pack_into
"""A frame as a whole: `F_START`, `F_CODE`, `F_STEP` and `F_SUBSTAGE`."""
_pack_step = Struct("@qqq").pack_into
_LAST_BUCKET = BUCKETS - 1
_FADE_STEP_NS = 60_000_000_000
"""The longest recent gap fades by 0.04 % once in a minute of gaps, not with each of them."""

Label = tuple[int, bytes, int]
"""What a stage is called: its code, its substage as stored, and what events say of both."""
_Free = tuple[int, "_Free"] | None


class Opened:
    """One pass through a stage; its lane fills it in and keeps it while it is open.

    `frame` is its first word in the record (0: there was no room).  `started` is the boot time when
    it was entered; negative inside of an open stage of the same name, which counts as a whole.
    `outer` is the stage that was the innermost before.
    """

    __slots__ = ("counts", "frame", "label", "outer", "started", "step")
    label: Label
    step: int | None
    counts: Counts
    frame: int
    started: int
    outer: Opened


class Counts:
    """The counts of a lane for one stage, and their words in the mapping."""

    __slots__ = (
        "at",
        "code",
        "duration_sum",
        "duration_sum_at",
        "durations_at",
        "fade_at",
        "faded",
        "gap_sum",
        "gap_sum_at",
        "gaps_at",
        "outside_steps",
        "recent_gap",
        "waited_at",
    )

    def __init__(self, at: int, code: int) -> None:
        """`at` is the first of the words."""
        self.at = at
        self.code = code
        self.outside_steps = STAGES[code] in OUTSIDE_STEPS
        self.duration_sum_at, self.duration_sum = at + T_DURATION_SUM, 0
        self.durations_at = at + T_DURATIONS
        self.gap_sum_at, self.gap_sum = at + T_GAP_SUM, 0
        self.gaps_at = at + T_GAPS
        self.waited_at = at + T_WAITED
        self.recent_gap = 0
        self.faded = -1
        """Sum of the gaps by which the longest recent one has faded; -1 before the first gap."""
        self.fade_at = 0
        """Sum of the gaps at which it fades again."""


class Lane:
    """The single writer of lane `index`.

    `marks` counts its heartbeats.  `step` is the latest step, -1 before the first.  `innermost` is
    the open stage that was entered last, or `_outside`.  `batches` is the word for the time spent
    waiting for data, `device` for the device.
    """

    __slots__ = (
        "_base",
        "_counts",
        "_enters",
        "_fails",
        "_free",
        "_last",
        "_leaves",
        "_marks_at",
        "_outside",
        "_place",
        "_progress_at",
        "_raw",
        "_sequence",
        "_step_at",
        "_step_place",
        "_steps",
        "_waits",
        "_words",
        "batches",
        "device",
        "innermost",
        "marks",
        "step",
    )

    def __init__(
        self, words: memoryview, raw: memoryview, index: int, place: Iterator[int]
    ) -> None:
        """`place` returns the offset in `raw` for the next event."""
        self._words = words
        self._raw = raw
        self._place = place
        lane = index << LANE_SHIFT
        self._enters, self._leaves = lane | E_ENTER, lane | E_LEAVE
        self._steps, self._fails = lane | E_STEP, lane | E_FAILURE
        self._base = base = LANES_AT // WORD + index * LANE_WORDS
        self._progress_at = base + L_PROGRESS
        self._marks_at = base + L_MARKS
        self._step_at = base + L_STEP
        self.batches = BATCHES_AT // WORD + index
        self.device = base + L_DEVICE
        steps = STEPS_AT + index * STEPS * STEP_SIZE
        self._step_place = itertools.cycle(range(steps, steps + STEPS * STEP_SIZE, STEP_SIZE))
        self._waits = self._words_of_waits()
        self._sequence = 0
        self.marks = 0
        self._last = 0
        self.step = -1
        totals = base + L_TOTALS
        self._counts = [Counts(totals + code * TOTAL_WORDS, code) for code in range(len(STAGES))]
        self._outside = Opened()
        self._outside.counts = self._counts[IDLE]
        self.innermost = self._outside
        self._free: _Free = None
        self._show([])

    def adopt(self, thread: int) -> None:
        """Take over the lane for a thread; the totals of an earlier thread continue."""
        words = self._words
        base = self._base
        words[base] = self._sequence + 1
        now = _read_clock(_BOOT)
        self.wait_no_longer(now)
        self._show([])
        self._last = 0
        self.step = words[self._step_at] = -1
        words[base + L_THREAD] = thread
        _pack_step(self._raw, next(self._step_place), now, APART, now)
        self._sequence += 2
        words[base] = self._sequence

    def settle(self, without: Opened | None = None) -> None:
        """Repair the lane, and drop a stage, after an exception in the middle of a change: a
        trainer's signal handler may raise at any point."""
        words = self._words
        base = self._base
        words[base] = self._sequence + 1
        self._show([stage for stage in self.opened() if stage is not without])
        self._sequence += 2
        words[base] = self._sequence

    def opened(self) -> list[Opened]:
        """The open stages, in the order of entry."""
        opened: list[Opened] = []
        stage = self.innermost
        # Not twice: signal handlers that raise in `enter` and again in `settle` leave a stage
        # linked, and a program that enters it once more makes a ring of it.
        while stage is not self._outside and stage not in opened:
            opened.append(stage)
            stage = stage.outer
        return opened[::-1]

    def move(self, words: memoryview, raw: memoryview) -> None:
        """Write to other memory from now on."""
        self._words = words
        self._raw = raw
        self._waits = self._words_of_waits()

    def heartbeat(self, step: int | None) -> None:
        """Record progress, and the step if one is given; a new step is an event."""
        words = self._words
        base = self._base
        now = _read_clock(_BOOT)
        words[base] = self._sequence + 1
        self._mark(now)
        if step is not None and step != self.step:
            self.step = words[self._step_at] = step
            _pack_event(self._raw, next(self._place), now, self._steps, 0, step, now)
            _pack_step(self._raw, next(self._step_place), now, sum(self._waits.tolist()), now)
        self._sequence += 2
        words[base] = self._sequence

    def enter(self, stage: Opened) -> None:
        """Open a stage with its label and perhaps a step."""
        code, substage, name = stage.label
        words = self._words
        base = self._base
        now = _read_clock(_BOOT)
        words[base] = self._sequence + 1
        self._mark(now)
        step = stage.step
        if step is None:
            step = self.step
        elif step != self.step:
            self.step = words[self._step_at] = step
            _pack_step(self._raw, next(self._step_place), now, sum(self._waits.tolist()), now)
        stage.started = now
        stage.counts = self._counts[code]
        if self._free is None:
            stage.frame = 0
            words[H_DROPPED] += 1
        else:
            frame, self._free = self._free
            stage.frame = frame
            stage.outer = self.innermost
            self.innermost = stage
            _pack_frame(self._raw, frame * WORD, now, code, step, substage)
        self._sequence += 2
        words[base] = self._sequence
        _pack_event(self._raw, next(self._place), now, self._enters, name, step, now)

    def leave(self, stage: Opened) -> None:
        """Close a stage that `enter` opened, and count its time."""
        words = self._words
        base = self._base
        now = _read_clock(_BOOT)
        words[base] = self._sequence + 1
        self._mark(now)
        frame = stage.frame
        if frame:
            if self.innermost is stage:
                self.innermost = stage.outer
            else:  # asyncio tasks do not end in the order they began
                opened = self.opened()
                opened.remove(stage)
                self._link(opened)
            words[frame] = 0  # F_START
            self._free = frame, self._free
        started = stage.started
        if started > 0:
            counts = stage.counts
            lasted = now - started
            counts.duration_sum = words[counts.duration_sum_at] = counts.duration_sum + lasted
            bucket = 0 if lasted < BUCKET_UNIT_NS else _bucket(lasted)
            words[counts.durations_at + bucket] += 1
            if counts.outside_steps:
                _pack_step(self._raw, next(self._step_place), now, APART, now)
        self._sequence += 2
        words[base] = self._sequence
        name = stage.label[2]
        _pack_event(self._raw, next(self._place), now, self._leaves, name, started, now)

    def fail(self, name: int, step: int) -> None:
        """Record an exception; `name` is the stage it left and the position of its type."""
        now = _read_clock(_BOOT)
        self.wait_no_longer(now)
        _pack_event(self._raw, next(self._place), now, self._fails, name, step, now)

    def wait_no_longer(self, now: int) -> None:
        """End waits that the thread left without a record."""
        words = self._words
        for counts in self._counts:
            if words[counts.waited_at] < 0:
                words[counts.waited_at] += now
        if words[self.device] < 0:
            words[self.device] += now

    def _words_of_waits(self) -> memoryview:
        """`T_WAITED` of all stages."""
        first = self._base + L_TOTALS + T_WAITED
        return self._words[first : first + len(STAGES) * TOTAL_WORDS : TOTAL_WORDS]

    def _mark(self, now: int) -> None:
        """Record progress at a time, and the gap since the last; the caller handles the sequence.

        Most gaps are no longer than recent ones, and change only a sum and a count.
        """
        words = self._words
        counts = self.innermost.counts
        gap = now - self._last
        gap_sum = counts.gap_sum + gap
        if 0 <= gap <= counts.recent_gap and gap_sum < counts.fade_at:
            counts.gap_sum = words[counts.gap_sum_at] = gap_sum
            bucket = 0 if gap < BUCKET_UNIT_NS else _bucket(gap)
            words[counts.gaps_at + bucket] += 1
        elif gap >= 0 and self._last:
            self._count_gap(counts, gap)
        self._last = words[self._progress_at] = now
        self.marks += 1
        words[self._marks_at] = self.marks

    def _count_gap(self, counts: Counts, gap: int) -> None:
        """Count a gap of any length.

        A stage's first gap only counts as its longest: it includes the compiler, the first batch
        and the wait for the last rank to start, and would hide a stall for the next two days.
        """
        words = self._words
        at = counts.at
        if counts.faded < 0:
            counts.faded = 0
            words[at + T_GAP_FIRST] += gap
        else:
            gap_sum = counts.gap_sum + gap
            counts.gap_sum = words[counts.gap_sum_at] = gap_sum
            words[counts.gaps_at + _bucket(gap)] += 1
            recent = counts.recent_gap
            recent -= recent * (gap_sum - counts.faded) >> GAP_MEMORY
            counts.recent_gap = words[at + T_GAP_RECENT] = gap if gap > recent else recent
            counts.faded = gap_sum
            counts.fade_at = gap_sum + _FADE_STEP_NS
        longest = words[at + T_GAP_LONGEST]
        words[at + T_GAP_LONGEST] = gap if gap > longest else longest

    def _link(self, opened: list[Opened]) -> None:
        """Set the open stages; at any point all of them are linked to the innermost one."""
        outer = self._outside
        for stage in opened:
            stage.outer = outer
            outer = stage
        self.innermost = outer

    def _show(self, opened: list[Opened]) -> None:
        """Show these stages and no others."""
        self._link(opened)
        taken = [stage.frame for stage in opened]
        self._free = None
        frames = self._base + L_FRAMES
        # Backwards, so that the first one is taken first.
        for frame in range(frames + (FRAMES - 1) * FRAME_WORDS, frames - 1, -FRAME_WORDS):
            if frame not in taken:
                self._words[frame] = 0  # F_START
                self._free = frame, self._free


def _bucket(nanoseconds: int) -> int:
    bucket = (nanoseconds // BUCKET_UNIT_NS).bit_length()
    return bucket if bucket < _LAST_BUCKET else _LAST_BUCKET
