"""The writer's side of one record: creates the file, hands out lanes, keeps the small tables."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import sys
import threading
import time
from pathlib import Path
from struct import Struct
from typing import Any

from stagewatch import record
from stagewatch.client._calls import CallTable
from stagewatch.client._lane import Lane
from stagewatch.identity import Identity, job_name
from stagewatch.record import (
    C_CALL,
    C_ELEMENTS,
    C_ENTERED,
    C_LEFT,
    C_SEQUENCE,
    C_SIZE,
    CALL_SHIFT,
    COLLECTIVE_SIZE,
    COLLECTIVES,
    COLLECTIVES_AT,
    E_COLLECTIVE,
    E_FORGET,
    E_LEFT,
    E_SCALAR,
    E_WAIT,
    EVENT_SIZE,
    EVENTS_AT,
    EVENTS_END,
    FILE_SIZE,
    GROUP_SIZE,
    H_DROPPED,
    NAMES_AT,
    PLACE_SHIFT,
    SUBSTAGE_SIZE,
    WORD,
    WORK_AT,
    WORK_WORDS,
    pad,
)
from stagewatch.stages import IDLE

_FIRST_FAILURE = record.H_FIRST_FAILURE, record.S_FIRST_ERROR, record.S_FIRST_MESSAGE
_LAST_FAILURE = record.H_LAST_FAILURE, record.S_LAST_ERROR, record.S_LAST_MESSAGE

_read_clock = time.clock_gettime_ns
_BOOT = time.CLOCK_BOOTTIME


class _Table(dict[Any, int]):
    """The offsets in the record of a table's entries, by key."""

    __slots__ = ("entry_size", "limit", "name_size", "start")

    def __init__(self, start: int, entry_size: int, name_size: int, limit: int) -> None:
        super().__init__()
        self.start = start
        self.entry_size = entry_size
        self.name_size = name_size
        self.limit = limit


class GroupRow:
    """The row of a process group: its words, and how often this rank has entered it.

    `counted` and `left` are the words of events for an entry (without the call) and for an end.
    """

    __slots__ = (
        "call_at",
        "counted",
        "elements_at",
        "entered_at",
        "left",
        "left_at",
        "name_at",
        "sequence",
        "sequence_at",
        "size",
        "size_at",
    )

    def __init__(self, name_at: int, sequence: int) -> None:
        """`name_at` is the byte of its name, where it begins."""
        self.name_at = name_at
        self.sequence = sequence
        self.size = 0
        word = (name_at + GROUP_SIZE) // WORD
        self.sequence_at = word + C_SEQUENCE
        self.left_at = word + C_LEFT
        self.call_at = word + C_CALL
        self.size_at = word + C_SIZE
        self.elements_at = word + C_ELEMENTS
        self.entered_at = word + C_ENTERED
        self.counted = word << PLACE_SHIFT | E_COLLECTIVE
        self.left = word << PLACE_SHIFT | E_LEFT

    def event(self, kind: int) -> int:
        """The words of another kind of event for the group."""
        return self.left ^ E_LEFT | kind


class Entry:
    """One entry into a collective; the recorder fills it in.

    `call` is the value of `C_CALL`.  `recorder` has recorded it, or is None.  `row` is its group,
    `entered` its time.  `waits` is the word that counts its time for the waiting thread's stage; 0
    if no thread waits.
    """

    __slots__ = ("call", "entered", "recorder", "row", "waits")
    call: int
    entered: int
    recorder: Recorder | None
    row: GroupRow
    waits: int


class Recorder:
    """A mapped record of this process.  Raises `OSError` if none can be made."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        if sys.byteorder != "little":
            raise OSError("the record's layout is little-endian; this machine is not")
        self.pid = os.getpid()
        self.framework = identity.framework
        self.path = directory / f"{self.pid}-{os.urandom(4).hex()}.rank"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        try:
            # Without the space reserved, a full tmpfs would end the trainer with SIGBUS later.
            os.posix_fallocate(self._fd, 0, FILE_SIZE)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._map = mmap.mmap(self._fd, FILE_SIZE)
            self._raw = memoryview(self._map)
            self._words = self._raw.cast("q")
            self._numbers = self._raw.cast("d")
            self._write_header(identity)
            # Last, and whatever the umask, since the agent is another user: a process that can open
            # # the file for reading before the lock is held can prevent it.
            os.fchmod(self._fd, 0o644)
        except BaseException:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise
        self._local = threading.local()
        self._tables = threading.RLock()  # held for microseconds; an RLock for signal handlers
        # They clear the place of an event, then write its words in order, whole words only.
        self._pack, self._pack_scalar = Struct("@qqqq").pack_into, Struct("@qqdq").pack_into
        # Where the next event belongs.  One call of C, so that no two threads get the same.
        self._place = itertools.cycle(range(EVENTS_AT, EVENTS_END, EVENT_SIZE))
        self._lanes = [
            Lane(self._words, self._raw, index, self._place) for index in range(record.LANES)
        ]
        self._lanes_free = self._lanes[::-1]
        self._scalars = _Table(
            record.SCALARS_AT, record.SCALAR_SIZE, record.SCALAR_NAME_SIZE, record.SCALARS
        )
        self._groups: dict[str, GroupRow] = {}
        last = COLLECTIVES_AT + COLLECTIVES * COLLECTIVE_SIZE
        self._groups_free = list(range(COLLECTIVES_AT, last, COLLECTIVE_SIZE))[::-1]
        self._failures = _Table(
            record.FAILURES_AT, record.FAILURE_SIZE, record.FAILURE_TYPE_SIZE, record.FAILURES
        )
        self.calls = CallTable(self._words, self._raw, self._tables)
        self.last_words: tuple[Lane, int] | None = None
        """The lane that an exception last left a stage in, and its marks at that time."""

    def lane(self) -> Lane | None:
        """The calling thread's lane, or None (counted) if more than `LANES` threads record."""
        try:
            lane: Lane = self._local.hold.lane
            return lane
        except AttributeError:
            pass
        try:
            lane = self._lanes_free.pop()
        except IndexError:
            self._words[record.H_DROPPED] += 1
            return None
        lane.adopt(threading.get_native_id())
        self.got_batch(lane.batches)  # the thread before it may never have got it
        self._local.hold = _Hold(lane, self._lanes_free)
        return lane

    def scalar(self, name: str, value: float) -> None:
        """Keep the last value of a name; a changed value is an event."""
        at = self._scalars.get(name)
        if at is None:
            at = self._add(self._scalars, name, name)
            if at is None:
                return
        word = at // WORD + 5
        changed = self._numbers[word] != value or not self._words[word + 1]
        self._numbers[word] = value
        now = _read_clock(_BOOT)
        if changed:
            self._pack_scalar(
                self._raw, next(self._place), now, at << PLACE_SHIFT | E_SCALAR, value, now
            )
        # Last: with a time, it counts as written.
        self._words[word + 1] = now

    def work(self, code: int | None, amounts: tuple[float, float, float]) -> None:
        """Add tokens, FLOPs and samples to those of a stage; None: the thread's innermost one."""
        if code is None:
            lane = self.lane()
            code = IDLE if lane is None else lane.innermost.counts.code
        at = WORK_AT // WORD + code * WORK_WORDS
        numbers = self._numbers
        with self._tables:
            for word, amount in enumerate(amounts, at):
                numbers[word] += amount

    def name(self, number: int, label: bytes) -> None:
        """Write the name for a number in events."""
        at = NAMES_AT + number * SUBSTAGE_SIZE
        self._raw[at : at + SUBSTAGE_SIZE] = label

    def join(self, group: str, size: int = 0, sequence: int = 0) -> GroupRow | None:
        """Record that this rank is in a process group, and how often it has entered it.

        Returns None (counted) if the table is full.
        """
        label = pad(group, GROUP_SIZE)
        words = self._words
        with self._tables:
            row = self._groups.get(group)
            if row is None:
                if not self._groups_free:
                    words[H_DROPPED] += 1
                    return None
                row = GroupRow(self._groups_free.pop(), sequence)
                words[row.sequence_at] = sequence
                self._raw[row.name_at : row.name_at + GROUP_SIZE] = label
                self._groups[group] = row
            words[row.size_at] = row.size = size
            return row

    def forget(self, group: str) -> None:
        """Drop a destroyed process group; a new one of its name counts from 0."""
        with self._tables:
            gone = self._groups.pop(group, None)
            if gone is not None:
                self._raw[gone.name_at : gone.name_at + COLLECTIVE_SIZE] = bytes(COLLECTIVE_SIZE)
                self._groups_free.append(gone.name_at)
                now = _read_clock(_BOOT)
                self._pack(self._raw, next(self._place), now, gone.event(E_FORGET), 0, now)

    def enter(self, entry: Entry, group: str, size: int = 0, elements: int = 0) -> None:
        """Count one entry into a collective of a process group, unless the table is full."""
        row = self._groups.get(group)
        if row is None:
            row = self.join(group, size)
            if row is None:
                return
        call = entry.call
        words = self._words
        words[row.entered_at] = now = _read_clock(_BOOT)
        words[row.call_at] = call
        row.sequence = words[row.sequence_at] = sequence = row.sequence + 1
        words[row.elements_at] = elements
        if size and size != row.size:
            words[row.size_at] = row.size = size
        what = call << CALL_SHIFT | row.counted
        self._pack(self._raw, next(self._place), now, what, sequence, now)
        entry.entered = now
        entry.row = row
        entry.recorder = self

    def again(self, entry: Entry, group: str) -> None:
        """Enter a group to wait for an earlier call: nothing is counted."""
        row = self._groups.get(group)
        if row is None:
            return
        call = entry.call
        words = self._words
        words[row.entered_at] = now = _read_clock(_BOOT)
        words[row.call_at] = call
        what = call << CALL_SHIFT | row.event(E_WAIT)
        self._pack(self._raw, next(self._place), now, what, row.sequence, now)
        entry.entered = now
        entry.row = row
        entry.recorder = self

    def wait(self, entry: Entry, call: int, since: int) -> None:
        """Change the call of an entry; the calling thread waits in it from a time on.

        The time counts for the thread's open stage, unless the thread waits already.
        """
        words = self._words
        words[entry.row.call_at] = call
        entry.waits = 0
        try:
            lane: Lane = self._local.hold.lane
        except AttributeError:
            return
        waits = lane.innermost.counts.waited_at
        waited = words[waits]
        if waited >= 0:
            words[waits] = waited - since
            entry.waits = waits

    def wait_for_batch(self) -> int:
        """Count, until `got_batch`, that the calling thread waits for a batch of data.

        Returns the word that counts it; 0 if none does: the thread has no lane, or waits already.
        """
        try:
            lane: Lane = self._local.hold.lane
        except AttributeError:
            return 0
        at = lane.batches
        waited = self._words[at]
        if waited < 0:
            return 0
        self._words[at] = waited - _read_clock(_BOOT)
        return at

    def got_batch(self, word: int) -> None:
        """End this wait; `word` is the result of `wait_for_batch`."""
        waited = self._words[word]
        if waited < 0:
            self._words[word] = waited + _read_clock(_BOOT)

    def wait_for_device(self) -> Lane | None:
        """Count, until `device_done`, that the calling thread waits for its device, as a wait of
        its open stage.

        Returns its lane; None if nothing is counted: the thread has no lane, or waits already, in a
        collective or for the device.
        """
        try:
            lane: Lane = self._local.hold.lane
        except AttributeError:
            return None
        words = self._words
        waits = lane.innermost.counts.waited_at
        waited = words[waits]
        if waited < 0 or words[lane.device] < 0:
            return None
        now = _read_clock(_BOOT)
        words[waits] = waited - now
        words[lane.device] -= now
        return lane

    def device_done(self, lane: Lane) -> None:
        """End this wait; `lane` is the result of `wait_for_device`."""
        words = self._words
        waits = lane.innermost.counts.waited_at
        now = _read_clock(_BOOT)
        if words[waits] < 0:
            words[waits] += now
        if words[lane.device] < 0:
            words[lane.device] += now

    def launched(self, entry: Entry) -> None:
        """Record that a call has returned and may go on on a device."""
        words = self._words
        words[entry.row.call_at] = entry.call
        waits = entry.waits
        if waits and words[waits] < 0:
            words[waits] += _read_clock(_BOOT)

    def leave(self, entry: Entry) -> None:
        """Record the end of an entry, unless the group was entered again since."""
        row = entry.row
        words = self._words
        entered, waits = entry.entered, entry.waits
        now = _read_clock(_BOOT)
        if words[row.entered_at] == entered:
            words[row.left_at] = now
        if waits:
            waited = words[waits]
            if waited < 0:
                words[waits] = waited + now
        self._pack(self._raw, next(self._place), now, row.left, entered, now)

    def expect(self, seconds: float) -> None:
        """Record how long a pause may take from now on."""
        until = _read_clock(_BOOT) + int(seconds * 1e9) if seconds > 0 else 0
        self._words[record.H_EXPECTED] = until

    def failure(self, code: int, error: BaseException, step: int) -> None:
        """Count an exception that left a stage; the first one is kept for good."""
        kind = type(error).__name__
        with self._tables:
            self._words[record.H_SEQUENCE] |= 1
            at = self._failures.get((code, kind))
            if at is None:
                at = self._add(self._failures, (code, kind), kind)
                if at is not None:
                    self._words[at // WORD + 6] = code
            if at is not None:
                self._words[at // WORD + 7] += 1
            if not self._words[record.H_FIRST_FAILURE]:
                self._describe(_FIRST_FAILURE, code, error, step)
            self._describe(_LAST_FAILURE, code, error, step)
            self._words[record.H_SEQUENCE] += 1

    def ended_in_failure(self) -> bool:
        """Whether an exception was the last thing its thread recorded.

        An exception that was caught far out, to be logged before `sys.exit(1)`, ends a process too.
        """
        return self.last_words is not None and self.last_words[0].marks == self.last_words[1]

    def name_framework(self, name: str) -> None:
        """Write the framework into a record that began without one."""
        self.framework = name
        self._words[record.H_SEQUENCE] += 1
        self._text(record.S_FRAMEWORK, name)
        self._words[record.H_SEQUENCE] += 1

    def close(self) -> None:
        """Mark the record as closed by its owner, and remove it."""
        self._words[record.H_CLOSED_AT] = time.clock_gettime_ns(_BOOT)
        self._words[record.H_CLOSED] = 1
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._fd)

    def disown(self) -> None:
        """In a forked child: give stages that were entered before the fork private memory, since
        the mapping belongs to the parent."""
        raw = memoryview(bytearray(FILE_SIZE))
        words = raw.cast("q")
        for lane in self._lanes:
            lane.move(words, raw)
        os.close(self._fd)

    def _add(self, table: _Table, key: Any, name: str) -> int | None:
        """The offset of a new entry, with its name written; None (counted) if the table is full."""
        label = pad(name, table.name_size)
        with self._tables:
            if key in table:
                return table[key]
            if len(table) >= table.limit:
                self._words[record.H_DROPPED] += 1
                return None
            at = table.start + len(table) * table.entry_size
            self._raw[at : at + len(label)] = label
            table[key] = at
            return at

    def _describe(
        self,
        place: tuple[int, tuple[int, int], tuple[int, int]],
        code: int,
        error: BaseException,
        step: int,
    ) -> None:
        word, kind, message = place
        self._text(kind, type(error).__name__)
        try:
            self._text(message, str(error))
        except Exception:
            self._text(message, "")
        self._words[word + 1] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._words[word + 2] = code
        self._words[word + 3] = step
        self._words[word] = time.time_ns()

    def _text(self, field: tuple[int, int], text: str) -> None:
        at, size = field
        self._raw[at : at + size] = pad(text, size)

    def _write_header(self, identity: Identity) -> None:
        words = self._words
        words[record.H_VERSION], words[record.H_SIZE] = record.VERSION, FILE_SIZE
        words[record.H_PID] = self.pid
        words[record.H_PID_NAMESPACE] = Path("/proc/self/ns/pid").stat().st_ino
        # Field 22 of /proc/self/stat; the command in field 2 may hold spaces and brackets.
        stat = Path("/proc/self/stat").read_text(errors="replace")
        words[record.H_START_TICKS] = int(stat.rpartition(")")[2].split()[19])
        words[record.H_CREATED_WALL] = time.time_ns()
        words[record.H_CREATED_BOOT] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        words[record.H_RANK] = identity.rank
        words[record.H_LOCAL_RANK] = identity.local_rank
        words[record.H_WORLD_SIZE] = identity.world_size
        self._text(record.S_BOOT_ID, Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        self._text(record.S_JOB_ID, identity.job_id)
        self._text(record.S_ROLE, identity.role)
        self._text(record.S_FRAMEWORK, identity.framework)
        self._text(record.S_HOST, os.uname().nodename)
        self._text(record.S_GPU, identity.gpu)
        self._text((record.JOB_NAME_AT, record.JOB_NAME_SIZE), job_name())
        at = record.H_MAGIC * WORD
        self._raw[at : at + WORD] = record.MAGIC  # last: the record is complete


class _Hold:
    """Gives a lane back when its thread ends, since thread-local storage is dropped then."""

    __slots__ = ("_free", "lane")

    def __init__(self, lane: Lane, free: list[Lane]) -> None:
        self.lane = lane
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.lane)
