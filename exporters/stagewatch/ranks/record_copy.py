"""Copies a record beside a writer that does not wait.

What is written as one (the header with its tables, each lane) is copied as one: its sequence
number was even before the copy and is the same after it.
"""

from __future__ import annotations

import os

from stagewatch.ranks.records import HEADER_PART, LANE_PARTS, CorruptRecord, looks_like_record
from stagewatch.record import L_THREAD, RECORD_SIZE, WORD

ATTEMPTS = 50
"""A lane is copied in about a microsecond, so that even ten thousand marks a second leave time."""

Busy = tuple[tuple[int, bytes], ...]
"""The parts that a writer was in the middle of, by offset, with their sequence numbers."""


def copy_record(fd: int) -> tuple[bytes, Busy]:
    """The bytes, and which parts of them cannot be relied on.

    Raises `CorruptRecord` where there is no record, `OSError` where it cannot be read.
    """
    raw = bytearray(os.pread(fd, RECORD_SIZE, 0))
    if not looks_like_record(raw):
        raise CorruptRecord("not a stage record, or cut short")
    used = [part for part in LANE_PARTS if any(_word(raw, part[0] + L_THREAD * WORD))]
    busy = []
    for part in (HEADER_PART, *used):
        if not _settled(fd, raw, part):
            busy.append((part[0], bytes(_word(raw, part[2]))))
    return bytes(raw), tuple(busy)


def _settled(fd: int, raw: bytearray, part: tuple[int, int, int]) -> bool:
    start, size, at = part
    for _ in range(ATTEMPTS):
        before = _word(raw, at)
        if not before[0] & 1 and os.pread(fd, WORD, at) == before:
            return True
        again = os.pread(fd, size, start)
        if len(again) != size:
            raise CorruptRecord("cut short")
        raw[start : start + size] = again
    return False


def _word(raw: bytearray, at: int) -> bytearray:
    return raw[at : at + WORD]
