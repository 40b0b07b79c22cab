"""Reads one stage record safely.

Other users write these files, so nothing in them is trusted; and their writers do not wait, so a
copy may be torn.  Each unit of the writer (the header with its tables, each lane) is copied as a
unit: its sequence number was even before the copy, and is the same after it.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from struct import Struct
from typing import NamedTuple

from stagewatch import record as layout
from stagewatch.core.words import printable
from stagewatch.record import (
    EVENT_SIZE,
    EVENTS_AT,
    EVENTS_END,
    FILE_SIZE,
    NAMES_AT,
    RECORD_SIZE,
    WORD,
    WORK_AT,
    unpad,
)
from stagewatch.stages import STAGES

ATTEMPTS = 50
"""A copy takes about a microsecond, so even ten thousand marks a second leave time for one."""

_MAX_NUMBER = 10_000_000

_WORK = Struct(f"<{layout.WORK_WORDS}d")
_WORK_SIZE = len(STAGES) * _WORK.size
_STEPS = Struct(f"<{3 * layout.STEPS}q")
_TOTALS = Struct(f"<{layout.TOTAL_WORDS}q")


_Part = tuple[int, int, int]
"""A unit of storage: byte offset, size, and the offset of its sequence number."""
_HEADER: _Part = (0, layout.LANES_AT, layout.H_SEQUENCE * WORD)
_LANE_SIZE = layout.LANE_WORDS * WORD
_LANES: tuple[_Part, ...] = tuple(
    (at, _LANE_SIZE, at) for at in range(layout.LANES_AT, RECORD_SIZE, _LANE_SIZE)
)

_SIZES = {*range(layout.LANES_AT, RECORD_SIZE + 1, _LANE_SIZE), WORK_AT, FILE_SIZE}

_Entries = list[tuple[str, tuple[int, ...]]]
"""Stages, each with its words in a lane."""

Busy = tuple[tuple[int, bytes], ...]
"""The parts that a writer was in the middle of storing: offsets and sequence numbers."""


class CorruptRecord(Exception):
    """The bytes cannot have come from a writer of this version."""


class OtherVersion(CorruptRecord):
    """The record of a client with another layout than this agent's."""


class Life(Enum):
    """The state of the process that writes a record."""

    ALIVE = "alive"
    GONE = "gone"
    """It ended without closing its record."""
    CLOSED = "closed"
    """It closed its record itself: a clean exit."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An open stage."""

    stage: str
    substage: str
    step: int | None
    started: float
    """`CLOCK_BOOTTIME`, seconds."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What one thread recorded."""

    frames: tuple[Frame, ...]
    """Open stages, the most recently entered last."""
    thread: int
    """Thread id in the rank's PID namespace."""
    progress: float
    """`CLOCK_BOOTTIME` of the last mark of progress, seconds; 0 if there was none."""
    marks: int
    step: int | None
    times: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By stage, nanoseconds as the thread's innermost stage between marks of progress; and of
    these, nanoseconds in collectives or in waits for the device (negative: see `T_WAITED`)."""
    batches: int = 0
    """Nanoseconds that the thread has waited for batches of data (negative: see `T_WAITED`)."""
    device: int = 0
    """Nanoseconds that it has waited for its device (negative: see `T_WAITED`)."""
    steps: tuple[tuple[int, int], ...] = ()
    """For its latest steps in order: when the step began, in nanoseconds of `CLOCK_BOOTTIME`, and
    how many nanoseconds the thread had waited by then (negative: the step cannot be measured)."""

    @property
    def step_began(self) -> float | None:
        """`CLOCK_BOOTTIME` when its step began, seconds; `None` if that was not recorded.

        It is too late if more has happened since than the record keeps."""
        begun = [time for time, waited in self.steps if waited != layout.APART]
        known = begun[-1:] or [time for time, _ in self.steps[:1]]
        return known[0] / 1e9 if known and self.step is not None else None


class StageTotals(NamedTuple):
    """Buckets of a stage: its durations, and the gaps between its marks of progress."""

    durations: tuple[int, ...]
    duration_seconds: float
    gaps: tuple[int, ...]
    gap_seconds: float
    longest_gap: float = 0.0
    """Seconds; over all threads, first gaps included."""
    recent_gap: float = 0.0
    """Seconds: the longest gap without first gaps; it fades over two days (`GAP_MEMORY`)."""

    def __add__(self, other: StageTotals) -> StageTotals:  # type: ignore[override]
        return StageTotals(
            tuple(map(operator.add, self.durations, other.durations)),
            self.duration_seconds + other.duration_seconds,
            tuple(map(operator.add, self.gaps, other.gaps)),
            self.gap_seconds + other.gap_seconds,
            max(self.longest_gap, other.longest_gap),
            max(self.recent_gap, other.recent_gap),
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one tool, environment or reward function."""

    durations: tuple[int, ...]
    seconds: float
    errors: int
    open: int
    """Number of calls in flight."""
    oldest: float
    """`CLOCK_BOOTTIME` when the oldest call in flight began, seconds; infinite if there is none."""

    def __add__(self, other: Calls) -> Calls:
        return Calls(
            tuple(map(operator.add, self.durations, other.durations)),
            self.seconds + other.seconds,
            self.errors + other.errors,
            self.open + other.open,
            min(self.oldest, other.oldest),
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A process group that the rank is a member of, and its last entry into a collective there."""

    sequence: int
    """Number of entries since the group was made."""
    entered: float
    """`CLOCK_BOOTTIME` of the last entry, or of the last wait for one; 0 before the first."""
    left: float
    end_known: bool
    """Whether the writer records when the rank leaves a collective."""
    size: int | None
    """Number of members, if the writer knows it."""
    op: str
    elements: int | None
    """Elements of the tensor, if all members must have the same number."""
    peer: int | None
    """The global rank of the peer of a send or receive."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that left a stage."""

    stage: str
    error: str
    message: str
    step: int | None
    time: float
    """Unix time, seconds."""


@dataclass
class RankRecord:
    """One rank's record at one moment, which nobody changes.

    It is not frozen, as that takes most of the time of making one.
    """

    job_id: str
    role: str
    rank: int
    local_rank: int | None
    world_size: int | None
    framework: str
    host: str
    gpu: str
    job_name: str
    """The user's name for the job; empty if no launcher set one."""
    pid: int
    """In the rank's PID namespace; from a `RecordDirectory`, in the agent's, 0 if not visible."""
    boot_id: str
    pid_namespace: int
    start_ticks: int
    created: float
    """Unix time, seconds."""
    closed: bool
    dropped: int
    lanes: tuple[Lane, ...]
    totals: Mapping[str, StageTotals]
    expected_until: float
    """`CLOCK_BOOTTIME` until which the trainer expects a pause, seconds; 0 if it expects none."""
    groups: Mapping[str, Group]
    """By name; sends and receives are in `POINT_TO_POINT`."""
    scalars: Mapping[str, float]
    """The scalars that are no checks of replicas."""
    work: Mapping[str, tuple[float, float, float]]
    """Tokens, FLOPs and samples by stage."""
    calls: Mapping[str, Calls]
    failures: Mapping[tuple[str, str], int]
    first_failure: Failure | None
    last_failure: Failure | None
    replicas: Mapping[str, float] = field(default_factory=dict)
    """Checks of replicas, by the scalar's name."""
    life: Life = Life.ALIVE
    name: str = field(default="", compare=False)
    """File name, for messages."""
    uid: int = field(default=-1, compare=False)
    """User the file belongs to."""
    closed_at: float = 0.0
    """`CLOCK_BOOTTIME` at which the process closed it, seconds; 0: unknown."""

    @property
    def collectives(self) -> dict[str, int]:
        """Number of entries by group, for groups in which all members have equally many."""
        groups = self.groups.items()
        return {name: group.sequence for name, group in groups if name != layout.POINT_TO_POINT}

    @cached_property
    def inside(self) -> dict[str, Group]:
        """The groups in whose collectives the rank is.

        An entry without a recorded end lasts until any thread makes a mark of progress or enters
        another collective."""
        newest = max((group.entered for group in self.groups.values()), default=0.0)
        marked = max((lane.progress for lane in self.lanes), default=0.0)
        return {
            name: group
            for name, group in self.groups.items()
            if group.left < group.entered and (group.end_known or marked <= group.entered == newest)
        }

    @cached_property
    def training(self) -> Lane | None:
        """The lane of the training thread; if that made no mark, the lane with the last mark."""
        if not self.lanes or self.lanes[0].marks:
            return self.lanes[0] if self.lanes else None
        return max(self.lanes, key=lambda lane: lane.progress)

    @cached_property
    def unmarked(self) -> bool:
        """Whether no thread has made a mark of progress, so that only collectives show that the
        rank goes on."""
        return bool(self._entered) and not any(lane.progress for lane in self.lanes)

    @cached_property
    def progress(self) -> float:
        """`CLOCK_BOOTTIME` of the last mark of progress in the lane `training`, seconds.

        For an unmarked rank, when it last entered or left a collective; 0 without either."""
        if self.unmarked:
            return self._entered
        return self.training.progress if self.training else 0.0

    @cached_property
    def _entered(self) -> float:
        return max((max(one.entered, one.left) for one in self.groups.values()), default=0.0)

    @cached_property
    def open(self) -> Frame | None:
        """The innermost open stage of the lane `training`, with the start of its outermost part;
        `init` for an unmarked rank."""
        lane = self.training
        if self.unmarked:
            return Frame("init", "", None, self.progress)
        if lane is None or not lane.frames:
            return None
        innermost = lane.frames[-1]
        parts = itertools.takewhile(
            lambda frame: frame.stage == innermost.stage, reversed(lane.frames)
        )
        return replace(innermost, started=min(frame.started for frame in parts))


@dataclass(frozen=True, slots=True)
class Recording:
    """A record together with its ring of events, as copied at one moment."""

    record: RankRecord
    raw: bytes
    """The file up to the end of its events."""
    boot_ns: int
    """`CLOCK_BOOTTIME` after the copy; all events are earlier."""
    wall_ns: int
    """Unix time of the same moment."""


def version_of(fd: int) -> int | None:
    """The version of the layout that a file of any size claims to have, if it is a record."""
    start = os.pread(fd, (layout.H_VERSION + 1) * WORD, 0)
    if not start.startswith(layout.MAGIC) or len(start) % WORD:
        return None
    return int.from_bytes(start[layout.H_VERSION * WORD :], "little")


def copy_record(fd: int) -> tuple[bytes, Busy]:
    """The bytes of a record up to its last used lane, and which of its parts are torn.

    Threads take unused lanes in order, so there is no used lane behind an unused one.  Raises
    `CorruptRecord` if it is no record, and `OSError` if it cannot be read.
    """
    raw = os.pread(fd, layout.LANES_AT + 2 * _LANE_SIZE, 0)  # most ranks use one lane
    used: list[_Part] = []
    for lane in _LANES:
        start = lane[0]
        if start >= len(raw):
            raw += os.pread(fd, _LANE_SIZE, start)
        if not any(_word_at(raw, start + layout.L_THREAD * WORD)):
            break
        used.append(lane)
    raw = raw[: layout.LANES_AT + len(used) * _LANE_SIZE]
    if not _looks_like_record(raw):
        raise CorruptRecord("not a stage record, or cut short")
    busy = []
    for part in (_HEADER, *used):
        raw, settled = _settled(fd, raw, part)
        if not settled:
            busy.append((part[0], _word_at(raw, part[2])))
    return raw, tuple(busy)


def copy_ring(fd: int) -> bytes:
    """The names and the ring of events behind a record; entries that changed meanwhile are zero.

    An entry that is the same in two copies was not being written between them.  Raises
    `CorruptRecord` where the file has been cut, `OSError` where it cannot be read.
    """
    size = EVENTS_END - NAMES_AT
    ring = bytearray(os.pread(fd, size, NAMES_AT))
    again = os.pread(fd, size, NAMES_AT)
    if len(ring) != size or len(again) != size:
        raise CorruptRecord("cut short")
    if ring != again:
        for at in range(EVENTS_AT - NAMES_AT, size, EVENT_SIZE):
            if ring[at : at + EVENT_SIZE] != again[at : at + EVENT_SIZE]:
                ring[at : at + EVENT_SIZE] = bytes(EVENT_SIZE)
    return bytes(ring)


def copy_rest(fd: int, raw: bytes) -> bytes:
    """The bytes behind the events, for the lanes in `raw`.  Raises `OSError`.

    Each word counts by itself, so no copy is torn; torn beginnings of steps are recognised.
    """
    lanes = (len(raw) - layout.LANES_AT) // _LANE_SIZE
    return os.pread(fd, layout.STEPS_AT - WORK_AT + lanes * _STEPS.size, WORK_AT)


def _settled(fd: int, raw: bytes, part: _Part) -> tuple[bytes, bool]:
    """The record with a part that is copied until it is not torn, and whether that succeeded."""
    start, size, at = part
    for _ in range(ATTEMPTS):
        before = _word_at(raw, at)
        if not before[0] & 1 and os.pread(fd, WORD, at) == before:
            return raw, True
        again = os.pread(fd, size, start)
        if len(again) != size:
            raise CorruptRecord("cut short")
        raw = raw[:start] + again + raw[start + size :]
    return raw, False


def _word_at(raw: bytes, at: int) -> bytes:
    return raw[at : at + WORD]


def _looks_like_record(raw: bytes) -> bool:
    """Whether these bytes are of a record: up to a lane, with its events, or the whole file."""
    return len(raw) in _SIZES and raw.startswith(layout.MAGIC)


def parse(raw: bytes, rest: bytes = b"") -> RankRecord:
    """A record from its bytes; `rest`: those behind the events, if `raw` is not the whole file.

    Raises `CorruptRecord` with the reason.
    """
    if not _looks_like_record(raw):
        raise CorruptRecord("not a stage record")
    words = memoryview(raw).cast("q")
    rest = (rest or raw[WORK_AT:]).ljust(FILE_SIZE - WORK_AT, b"\0")
    if words[layout.H_VERSION] != layout.VERSION:
        raise OtherVersion(f"version {words[layout.H_VERSION]} is not {layout.VERSION}")
    rank, pid = words[layout.H_RANK], words[layout.H_PID]
    if not (0 <= rank <= _MAX_NUMBER and 0 < pid < 2**31):
        raise CorruptRecord(f"rank {rank} or pid {pid} cannot be")
    starts = [at // WORD for at, _, _ in _LANES if at < len(raw)]
    lanes = {at: _stage_entries(raw, at) for at in starts if words[at + layout.L_THREAD]}
    scalars = _scalars(raw, words)
    return RankRecord(
        job_id=_text(raw, *layout.S_JOB_ID),
        role=_text(raw, *layout.S_ROLE),
        rank=rank,
        local_rank=_optional(words[layout.H_LOCAL_RANK]),
        world_size=_optional(words[layout.H_WORLD_SIZE]),
        framework=_text(raw, *layout.S_FRAMEWORK),
        host=_text(raw, *layout.S_HOST),
        gpu=_text(raw, *layout.S_GPU),
        job_name=_text(rest, layout.JOB_NAME_AT - WORK_AT, layout.JOB_NAME_SIZE),
        pid=pid,
        boot_id=_text(raw, *layout.S_BOOT_ID),
        pid_namespace=words[layout.H_PID_NAMESPACE],
        start_ticks=words[layout.H_START_TICKS],
        created=words[layout.H_CREATED_WALL] / 1e9,
        closed=words[layout.H_CLOSED] == 1,
        closed_at=max(0, words[layout.H_CLOSED_AT]) / 1e9,
        dropped=max(0, words[layout.H_DROPPED]),
        lanes=tuple([_lane(raw, words, rest, at, entries) for at, entries in lanes.items()]),
        totals=_totals(lanes.values()),
        expected_until=max(0, words[layout.H_EXPECTED]) / 1e9,
        groups=_groups(raw, words),
        scalars={name: value for name, value in scalars if not name.startswith(layout.REPLICA)},
        replicas={name: value for name, value in scalars if name.startswith(layout.REPLICA)},
        work=_work(rest),
        calls=_calls(rest),
        failures=_failures(raw, words),
        first_failure=_failure(
            raw, words, layout.H_FIRST_FAILURE, layout.S_FIRST_ERROR, layout.S_FIRST_MESSAGE
        ),
        last_failure=_failure(
            raw, words, layout.H_LAST_FAILURE, layout.S_LAST_ERROR, layout.S_LAST_MESSAGE
        ),
    )


def _text(raw: bytes, at: int, size: int) -> str:
    return _readable(raw[at : at + size])


@lru_cache(maxsize=4096)
def _readable(padded: bytes) -> str:
    text = unpad(padded)
    return text if text.isprintable() else printable(text)


def _optional(number: int) -> int | None:
    return number if 0 <= number <= _MAX_NUMBER else None


def _step(step: int) -> int | None:
    return step if step >= 0 else None


def _stage(code: int) -> str:
    if not 0 <= code < len(STAGES):
        raise CorruptRecord(f"stage code {code} cannot be")
    return STAGES[code]


def _stage_entries(raw: bytes, lane: int) -> _Entries:
    """What a lane has about each stage that was ever its innermost one."""
    start = (lane + layout.L_TOTALS) * WORD
    entries = _TOTALS.iter_unpack(raw[start : start + len(STAGES) * _TOTALS.size])
    return [(stage, entry) for stage, entry in zip(STAGES, entries, strict=True) if any(entry)]


def _lane(raw: bytes, words: memoryview, rest: bytes, base: int, entries: _Entries) -> Lane:
    index = (base * WORD - layout.LANES_AT) // _LANE_SIZE
    batches = layout.BATCHES_AT - WORK_AT + index * WORD
    frames = []
    for slot in range(layout.FRAMES):
        at = base + layout.L_FRAMES + slot * layout.FRAME_WORDS
        started = words[at + layout.F_START]
        if started > 0:
            frames.append(
                Frame(
                    stage=_stage(words[at + layout.F_CODE]),
                    substage=_text(raw, (at + layout.F_SUBSTAGE) * WORD, layout.SUBSTAGE_SIZE),
                    step=_step(words[at + layout.F_STEP]),
                    started=started / 1e9,
                )
            )
    frames.sort(key=lambda frame: frame.started)
    return Lane(
        frames=tuple(frames),
        thread=words[base + layout.L_THREAD],
        progress=max(0, words[base + layout.L_PROGRESS]) / 1e9,
        marks=max(0, words[base + layout.L_MARKS]),
        step=_step(words[base + layout.L_STEP]),
        times=_times(entries),
        batches=int.from_bytes(rest[batches : batches + WORD], "little", signed=True),
        device=words[base + layout.L_DEVICE],
        steps=_steps(rest, layout.STEPS_AT - WORK_AT + index * _STEPS.size),
    )


def _steps(rest: bytes, at: int) -> tuple[tuple[int, int], ...]:
    words = _STEPS.unpack_from(rest, at)
    begun = zip(words[::3], words[1::3], words[2::3], strict=True)
    return tuple(sorted([(time, waited) for time, waited, again in begun if 0 < time == again]))


def _times(entries: _Entries) -> dict[str, tuple[int, int]]:
    times = {}
    for stage, entry in entries:
        spent = entry[layout.T_GAP_SUM] + entry[layout.T_GAP_FIRST]
        waited = entry[layout.T_WAITED]
        if spent or waited:
            times[stage] = spent, waited
    return times


def _totals(lanes: Iterable[_Entries]) -> dict[str, StageTotals]:
    """The totals, over all lanes, of every stage that was ever completed or had a mark."""
    totals: dict[str, StageTotals] = {}
    for stage, entry in itertools.chain.from_iterable(lanes):
        # `T_WAITED` is of this thread alone, and negative while it waits.
        sums, buckets = entry[: layout.T_WAITED], entry[layout.T_DURATIONS :]
        if any(sums) or any(buckets):
            if min(sums) < 0 or min(buckets) < 0:
                raise CorruptRecord("a count is negative")
            mine = _stage_totals(entry)
            totals[stage] = totals[stage] + mine if stage in totals else mine
    return totals


def _stage_totals(entry: tuple[int, ...]) -> StageTotals:
    return StageTotals(
        durations=entry[layout.T_DURATIONS : layout.T_DURATIONS + layout.BUCKETS],
        duration_seconds=entry[layout.T_DURATION_SUM] / 1e9,
        gaps=entry[layout.T_GAPS : layout.T_GAPS + layout.BUCKETS],
        gap_seconds=entry[layout.T_GAP_SUM] / 1e9,
        longest_gap=entry[layout.T_GAP_LONGEST] / 1e9,
        recent_gap=entry[layout.T_GAP_RECENT] / 1e9,
    )


def _entries(raw: bytes, start: int, size: int, count: int, name: int) -> Iterator[tuple[str, int]]:
    """Names of the used entries of a table, and the index of the first word after each name."""
    for at in range(start, start + count * size, size):
        if raw[at]:
            yield _text(raw, at, name), (at + name) // WORD


def _groups(raw: bytes, words: memoryview) -> dict[str, Group]:
    table = layout.COLLECTIVES_AT, layout.COLLECTIVE_SIZE, layout.COLLECTIVES, layout.GROUP_SIZE
    return {
        name: Group(
            sequence=max(0, words[at + layout.C_SEQUENCE]),
            entered=max(0, words[at + layout.C_ENTERED]) / 1e9,
            left=max(0, words[at + layout.C_LEFT]) / 1e9,
            end_known=bool(words[at + layout.C_CALL] & layout.END_KNOWN),
            size=_optional(words[at + layout.C_SIZE]) or None,
            op=_op(words[at + layout.C_CALL] % layout.END_KNOWN),
            elements=max(0, words[at + layout.C_ELEMENTS]) or None,
            peer=_optional(words[at + layout.C_CALL] // layout.PEER - 1),
        )
        for name, at in _entries(raw, *table)
    }


def _op(code: int) -> str:
    return layout.OPS[code if code < len(layout.OPS) else 0]


def _scalars(raw: bytes, words: memoryview) -> list[tuple[str, float]]:
    table = layout.SCALARS_AT, layout.SCALAR_SIZE, layout.SCALARS, layout.SCALAR_NAME_SIZE
    doubles = memoryview(raw).cast("d")
    return [(name, doubles[at]) for name, at in _entries(raw, *table) if words[at + 1] > 0]


def _work(raw: bytes) -> dict[str, tuple[float, float, float]]:
    work = {}
    counts = _WORK.iter_unpack(raw[:_WORK_SIZE])
    for stage, (tokens, flops, samples) in zip(STAGES, counts, strict=True):
        if tokens > 0 or flops > 0 or samples > 0:
            work[stage] = tokens, flops, samples
    return work


def _calls(raw: bytes) -> dict[str, Calls]:
    words = memoryview(raw).cast("q")
    start = layout.CALLS_AT - WORK_AT
    table = start, layout.CALL_SIZE, layout.CALLS, layout.CALL_NAME_SIZE
    calls: dict[str, Calls] = {}
    for name, at in _entries(raw, *table):
        entry = [max(0, word) for word in words[at : at + layout.K_DURATIONS + layout.BUCKETS]]
        durations = tuple(entry[layout.K_DURATIONS :])
        opened, oldest = entry[layout.K_OPEN], entry[layout.K_OLDEST]
        if opened or any(durations):  # else its name may not have been written whole
            seconds, errors = entry[layout.K_SUM] / 1e9, entry[layout.K_ERRORS]
            since = oldest / 1e9 if opened and oldest else math.inf
            one = Calls(durations, seconds, errors, opened, since)
            calls[name] = calls[name] + one if name in calls else one
    return calls


def _failures(raw: bytes, words: memoryview) -> dict[tuple[str, str], int]:
    table = layout.FAILURES_AT, layout.FAILURE_SIZE, layout.FAILURES, layout.FAILURE_TYPE_SIZE
    return {
        (_stage(words[at]), error): max(0, words[at + 1]) for error, at in _entries(raw, *table)
    }


def _failure(
    raw: bytes, words: memoryview, at: int, error: tuple[int, int], message: tuple[int, int]
) -> Failure | None:
    when = words[at]
    if when <= 0:
        return None
    return Failure(
        stage=_stage(words[at + 2]),
        error=_text(raw, *error),
        message=_text(raw, *message),
        step=_step(words[at + 3]),
        time=when / 1e9,
    )
