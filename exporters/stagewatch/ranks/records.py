"""Reads one stage record.  Other users write these files, so nothing in them is trusted."""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterator

from stagewatch import record as layout
from stagewatch.ranks.rank_record import Failure, Frame, Lane, RankRecord, StageTotals
from stagewatch.record import WORD, unpad
from stagewatch.stages import STAGES


class CorruptRecord(Exception):
    """The bytes cannot have come from a writer of this version."""


_WORDS = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_MAX_NUMBER = 10_000_000


def _lane_at(index: int) -> int:
    return layout.LANES_AT // WORD + index * layout.LANE_WORDS


HEADER_PART = (0, layout.LANES_AT, layout.H_SEQUENCE * WORD)
LANE_PARTS = tuple(
    (_lane_at(i) * WORD, layout.LANE_WORDS * WORD, _lane_at(i) * WORD) for i in range(layout.LANES)
)
"""What is written as one: byte offset, size, and the offset of the sequence number over it."""


def looks_like_record(raw: bytes | bytearray) -> bool:
    """Whether the bytes begin as a record that its writer has completed."""
    return len(raw) == layout.RECORD_SIZE and raw.startswith(layout.MAGIC)


def parse(raw: bytes) -> RankRecord:
    """A record out of its bytes.  Raises `CorruptRecord` with the reason."""
    if not looks_like_record(raw):
        raise CorruptRecord("not a stage record")
    if _word(raw, layout.H_VERSION) != layout.VERSION:
        raise CorruptRecord(f"version {_word(raw, layout.H_VERSION)} is not {layout.VERSION}")
    rank, pid = _word(raw, layout.H_RANK), _word(raw, layout.H_PID)
    if not (0 <= rank <= _MAX_NUMBER and 0 < pid < 2**31):
        raise CorruptRecord(f"rank {rank} or pid {pid} cannot be")
    words = memoryview(raw).cast("q")
    return RankRecord(
        job_id=_text(raw, layout.S_JOB_ID),
        role=_text(raw, layout.S_ROLE),
        rank=rank,
        local_rank=_optional(_word(raw, layout.H_LOCAL_RANK)),
        world_size=_optional(_word(raw, layout.H_WORLD_SIZE)),
        framework=_text(raw, layout.S_FRAMEWORK),
        host=_text(raw, layout.S_HOST),
        gpu=_text(raw, layout.S_GPU),
        pid=pid,
        boot_id=_text(raw, layout.S_BOOT_ID),
        pid_namespace=_word(raw, layout.H_PID_NAMESPACE),
        start_ticks=_word(raw, layout.H_START_TICKS),
        created=_word(raw, layout.H_CREATED_WALL) / 1e9,
        closed=_word(raw, layout.H_CLOSED) == 1,
        dropped=max(0, _word(raw, layout.H_DROPPED)),
        lanes=tuple(_lane(raw, i) for i in range(layout.LANES) if _word(raw, _lane_at(i) + 1)),
        totals=_totals(words),
        collectives=dict(_collectives(raw)),
        scalars=dict(_scalars(raw)),
        failures=_failures(raw),
        first_failure=_failure(
            raw, layout.H_FIRST_FAILURE, layout.S_FIRST_ERROR, layout.S_FIRST_MESSAGE
        ),
        last_failure=_failure(
            raw, layout.H_LAST_FAILURE, layout.S_LAST_ERROR, layout.S_LAST_MESSAGE
        ),
    )


def _word(raw: bytes, index: int) -> int:
    found: int = _WORDS.unpack_from(raw, index * WORD)[0]
    return found


def _text(raw: bytes, where: tuple[int, int]) -> str:
    return _clean(raw[where[0] : where[0] + where[1]])


def _clean(raw: bytes) -> str:
    text = unpad(raw)
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _optional(number: int) -> int | None:
    return number if 0 <= number <= _MAX_NUMBER else None


def _stage(code: int) -> str:
    if not 0 <= code < len(STAGES):
        raise CorruptRecord(f"stage code {code} cannot be")
    return STAGES[code]


def _lane(raw: bytes, index: int) -> Lane:
    base = _lane_at(index)
    frames = []
    for slot in range(layout.FRAMES):
        at = base + layout.L_FRAMES + slot * layout.FRAME_WORDS
        started = _word(raw, at + layout.F_START)
        if started > 0:
            text = (at + layout.F_SUBSTAGE) * WORD
            stage = _stage(_word(raw, at + layout.F_CODE))
            substage = _clean(raw[text : text + layout.SUBSTAGE_SIZE])
            step = _step(_word(raw, at + layout.F_STEP))
            frames.append(Frame(stage, substage, step, started / 1e9))
    frames.sort(key=lambda frame: frame.started)
    return Lane(
        frames=tuple(frames),
        progress=max(0, _word(raw, base + layout.L_PROGRESS)) / 1e9,
        marks=max(0, _word(raw, base + layout.L_MARKS)),
        step=_step(_word(raw, base + layout.L_STEP)),
    )


def _step(step: int) -> int | None:
    return step if step >= 0 else None


def _totals(words: memoryview) -> dict[str, StageTotals]:
    size = layout.TOTAL_WORDS
    found = {}
    sums = [0] * (size * len(STAGES))
    for index in range(layout.LANES):
        base = _lane_at(index)
        if words[base + 1]:
            at = base + layout.L_TOTALS
            sums = list(map(operator.add, sums, words[at : at + len(sums)].tolist()))
    if min(sums) < 0:
        raise CorruptRecord("a count is negative")
    for code, stage in enumerate(STAGES):
        entry = sums[code * size : (code + 1) * size]
        durations = tuple(entry[layout.T_DURATIONS : layout.T_DURATIONS + layout.BUCKETS])
        gaps = tuple(entry[layout.T_GAPS : layout.T_GAPS + layout.BUCKETS])
        if any(durations) or any(gaps):
            found[stage] = StageTotals(
                durations,
                entry[layout.T_DURATION_SUM] / 1e9,
                gaps,
                entry[layout.T_GAP_SUM] / 1e9,
            )
    return found


def _entries(raw: bytes, start: int, size: int, count: int, name: int) -> Iterator[tuple[str, int]]:
    """Name and byte offset of the used entries of a table."""
    for index in range(count):
        at = start + index * size
        if raw[at]:
            yield _clean(raw[at : at + name]), at


def _collectives(raw: bytes) -> Iterator[tuple[str, int]]:
    for group, at in _entries(
        raw, layout.COLLECTIVES_AT, layout.COLLECTIVE_SIZE, layout.COLLECTIVES, 32
    ):
        yield group, max(0, _word(raw, at // WORD + 4))


def _scalars(raw: bytes) -> Iterator[tuple[str, float]]:
    for name, at in _entries(raw, layout.SCALARS_AT, layout.SCALAR_SIZE, layout.SCALARS, 40):
        if _word(raw, at // WORD + 6) > 0:
            yield name, _DOUBLE.unpack_from(raw, at + 40)[0]


def _failures(raw: bytes) -> dict[tuple[str, str], int]:
    return {
        (_stage(_word(raw, at // WORD + 6)), error): max(0, _word(raw, at // WORD + 7))
        for error, at in _entries(raw, layout.FAILURES_AT, layout.FAILURE_SIZE, layout.FAILURES, 48)
    }


def _failure(
    raw: bytes, word: int, error: tuple[int, int], message: tuple[int, int]
) -> Failure | None:
    when = _word(raw, word)
    if when <= 0:
        return None
    return Failure(
        stage=_stage(_word(raw, word + 2)),
        error=_text(raw, error),
        message=_text(raw, message),
        step=_step(_word(raw, word + 3)),
        time=when / 1e9,
    )
