"""One thread's part of the record: its open stages, its progress and its totals.

Every method is called by the owning thread alone.  All stores go into the mapping: no system
call, no lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from stagewatch.record import (
    BATCHES_AT,
    BUCKET_UNIT_NS,
    BUCKETS,
    E_ENTER,
    E_FAILURE,
    E_LEAVE,
    E_STEP,
    F_CODE,
    F_START,
    F_STEP,
    F_SUBSTAGE,
    FRAME_WORDS,
    FRAMES,
    GAP_MEMORY,
    H_DROPPED,
    L_FRAMES,
    L_MARKS,
    L_PROGRESS,
    L_STEP,
    L_THREAD,
    L_TOTALS,
    LANE_SHIFT,
    LANE_WORDS,
    LANES_AT,
    SUBSTAGE_SIZE,
    T_DURATION_SUM,
    T_DURATIONS,
    T_GAP_FIRST,
    T_GAP_LONGEST,
    T_GAP_RECENT,
    T_GAP_SUM,
    T_GAPS,
    T_WAITED,
    TOTAL_WORDS,
    WORD,
)
from stagewatch.stages import IDLE, STAGES

_LAST_BUCKET = BUCKETS - 1
_read_clock = time.clock_gettime_ns
_BOOT = time.CLOCK_BOOTTIME

NO_SLOT = -1


class Lane:
    """The single writer of lane `index`.

    `marks` counts its marks of progress; `step` is the latest step, -1 before the first; `opened`
    holds the slots of the open stages, in the order of entry; `code` is the innermost of them, and
    `waits` the word of the time waited in the first of all stages; `batches` is the word of the
    time waited for data.
    """

    __slots__ = (
        "_base",
        "_codes",
        "_enters",
        "_free",
        "_lane",
        "_last",
        "_leaves",
        "_pack",
        "_place",
        "_raw",
        "_sequence",
        "_warm",
        "_words",
        "batches",
        "code",
        "marks",
        "opened",
        "step",
        "waits",
    )

    def __init__(
        self,
        words: memoryview,
        raw: memoryview,
        index: int,
        pack: Callable[..., None],
        place: Iterator[int],
    ) -> None:
        """`pack` stores an event in `raw`, `place` gives where the next one belongs."""
        self._words = words
        self._raw = raw
        self._pack = pack
        self._place = place
        self._lane = index << LANE_SHIFT
        self._enters = self._lane | E_ENTER
        self._leaves = self._lane | E_LEAVE
        self._base = LANES_AT // WORD + index * LANE_WORDS
        self.waits = self._base + L_TOTALS + T_WAITED
        self.batches = BATCHES_AT // WORD + index
        self._sequence: int = words[self._base]
        self.marks: int = words[self._base + L_MARKS]
        self._last = 0
        self.step = -1
        self.code = IDLE
        self._codes = [IDLE] * FRAMES
        self._warm = [False] * len(STAGES)
        self.opened: list[int] = []
        self._free = list(range(FRAMES - 1, -1, -1))

    def adopt(self, thread: int) -> None:
        """Take the lane over for a thread; totals of an earlier thread go on counting."""
        words = self._words
        base = self._base
        words[base] = self._sequence + 1
        self.wait_no_longer(_read_clock(_BOOT))
        for slot in range(FRAMES):
            words[base + L_FRAMES + slot * FRAME_WORDS + F_START] = 0
        self._free = list(range(FRAMES - 1, -1, -1))
        self.opened.clear()
        self.code = IDLE
        self._last = 0
        self.step = words[base + L_STEP] = -1
        words[base + L_THREAD] = thread
        self._sequence += 2
        words[base] = self._sequence

    def settle(self, opened: list[int]) -> None:
        """Put the lane in order, with these stages open, after an exception in the middle of a
        change: a trainer's signal handler may raise at any point."""
        words = self._words
        base = self._base
        words[base] = self._sequence + 1
        for slot in range(FRAMES):
            if slot not in opened:
                words[base + L_FRAMES + slot * FRAME_WORDS + F_START] = 0
        self._free = [slot for slot in range(FRAMES - 1, -1, -1) if slot not in opened]
        self.opened = opened
        self.code = self._codes[opened[-1]] if opened else IDLE
        self._sequence += 2
        words[base] = self._sequence

    def move(self, words: memoryview, raw: memoryview) -> None:
        """Write to other memory from now on."""
        self._words = words
        self._raw = raw

    def heartbeat(self, step: int | None) -> None:
        """Record progress, and the step if one is given; a new step is an event."""
        words = self._words
        base = self._base
        now = _read_clock(_BOOT)
        if step is not None and step != self.step:
            self.step = step
            self._pack(self._raw, next(self._place), now, self._lane | E_STEP, step, now)
        words[base] = self._sequence + 1
        self._mark(words, base, now)
        self._sequence += 2
        words[base] = self._sequence

    def enter(self, code: int, substage: bytes, name: int, step: int | None) -> tuple[int, int]:
        """Open a stage; returns the slot that shows it (`NO_SLOT`: all are taken) and the time.

        `name` is what events say of it: its code and the position of its substage in `NAMES`.
        """
        if step is not None:
            self.step = step
        words = self._words
        base = self._base
        now = _read_clock(_BOOT)
        slot = self._free.pop() if self._free else NO_SLOT
        words[base] = self._sequence + 1
        self._mark(words, base, now)
        if slot == NO_SLOT:
            words[H_DROPPED] += 1
        else:
            frame = base + L_FRAMES + slot * FRAME_WORDS
            words[frame + F_CODE] = code
            words[frame + F_STEP] = self.step
            at = (frame + F_SUBSTAGE) * WORD
            self._raw[at : at + SUBSTAGE_SIZE] = substage
            words[frame + F_START] = now
            self.opened.append(slot)
            self._codes[slot] = code
            self.code = code
        self._sequence += 2
        words[base] = self._sequence
        self._pack(self._raw, next(self._place), now, name | self._enters, self.step, now)
        return slot, now

    def leave(self, slot: int, code: int, name: int, started: int) -> None:
        """Close a stage that `enter` opened, and count how long it took.

        `started` is negative for a part of an open stage of the same name: that counts as a whole.
        """
        words = self._words
        base = self._base
        now = _read_clock(_BOOT)
        words[base] = self._sequence + 1
        self._mark(words, base, now)
        if slot != NO_SLOT:
            words[base + L_FRAMES + slot * FRAME_WORDS + F_START] = 0
            self._free.append(slot)
            opened = self.opened
            if opened[-1] == slot:
                opened.pop()
            else:  # asyncio tasks do not end in the order they began
                opened.remove(slot)
            self.code = self._codes[opened[-1]] if opened else IDLE
        if started > 0:
            totals = base + L_TOTALS + code * TOTAL_WORDS
            lasted = now - started
            words[totals + T_DURATION_SUM] += lasted
            bucket = (lasted // BUCKET_UNIT_NS).bit_length()
            words[totals + T_DURATIONS + (bucket if bucket < _LAST_BUCKET else _LAST_BUCKET)] += 1
        self._sequence += 2
        words[base] = self._sequence
        self._pack(self._raw, next(self._place), now, name | self._leaves, started, now)

    def fail(self, name: int, step: int) -> None:
        """Tell of an exception; `name` is the stage it left and the position of its type."""
        now = _read_clock(_BOOT)
        self.wait_no_longer(now)
        self._pack(self._raw, next(self._place), now, name | self._lane | E_FAILURE, step, now)

    def wait_no_longer(self, now: int) -> None:
        """End waits that the thread left in a way that nobody told."""
        words = self._words
        for at in range(self.waits, self.waits + len(STAGES) * TOTAL_WORDS, TOTAL_WORDS):
            if words[at] < 0:
                words[at] += now

    def _mark(self, words: memoryview, base: int, now: int) -> None:
        """Record progress at a time, and the gap since the last; the caller keeps the sequence.

        A stage's first gap counts as its longest only: it holds the compiler, the first batch, and
        the wait for whichever rank starts last, and would hide a stall for the next two days.
        One that ends before it begins counts nowhere: a signal handler has made a mark since `now`
        was read.
        """
        last = self._last
        if last and last <= now:
            gap = now - last
            code = self.code
            totals = base + L_TOTALS + code * TOTAL_WORDS
            recent = 0
            if self._warm[code]:
                words[totals + T_GAP_SUM] += gap
                bucket = (gap // BUCKET_UNIT_NS).bit_length()
                words[totals + T_GAPS + (bucket if bucket < _LAST_BUCKET else _LAST_BUCKET)] += 1
                recent = words[totals + T_GAP_RECENT]
                recent -= recent * gap >> GAP_MEMORY
                words[totals + T_GAP_RECENT] = gap if gap > recent else recent
            else:
                self._warm[code] = True
                words[totals + T_GAP_FIRST] += gap
            if gap > recent and gap > words[totals + T_GAP_LONGEST]:
                words[totals + T_GAP_LONGEST] = gap
        self._last = now
        self.marks += 1
        words[base + L_PROGRESS] = now
        words[base + L_MARKS] = self.marks
        words[base + L_STEP] = self.step
