"""Reads new lines of one log file, over rotations, truncations, floods and endless lines.

For workers of the helper process: standard library only.  The state of a file is a dictionary for
JSON: labels, inode, offset, in_long_line, written, counts.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stagewatch.core.descriptors import regular
from stagewatch.core.path_patterns import Entries
from stagewatch.logs.patterns import Pattern, cut

READ = 1 << 20
MAX_PENDING = 64 << 10
"""A last line without an end is examined once it has this length."""
QUIET_SECONDS = 5.0
"""A last line without an end is examined after so much time without writing: it may be the last."""
MAX_SERIES = 64
"""The most combinations of pattern and rank in one file; further ranks count as `other`."""
CLOCK_SLACK = 86400.0
"""A time in a line counts only if it is at most a day before the reading."""

LABELS = ("job_id", "role", "rank")

_RANK = re.compile(rb"\[(?:rank|default)(\d{1,6})\]")
"""The rank that torchrun or srun has put before a line."""
_TIME = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?\d*"
    rb"(?:(Z)|([+-])(\d\d):?(\d\d))?"
)


class LogReader:
    """Counts the lines that match a pattern, and the bytes read and skipped."""

    def __init__(self, patterns: Iterable[Pattern], entries: Entries) -> None:
        self.read = 0
        self.skipped = 0
        self._patterns = tuple(patterns)
        self._entries = entries

    def read_on(
        self, path: Path, file: dict[str, Any], status: os.stat_result, share: int, seconds: float
    ) -> int:
        """Read the new part, over a rotation or a truncation; return the bytes read.

        `share`: of the bytes; `seconds`: of the processor's time.  Lines that a pattern has not
        searched by then are skipped: a user can write some that take it years.
        """
        read = 0
        self._seconds = seconds
        inode = [status.st_dev, status.st_ino]
        if file["inode"] != inode:
            rotated = self._rotated(path, file["inode"])
            if rotated is not None:
                read += self._read_file(rotated, file, share)
            file |= {"inode": inode, "offset": 0, "in_long_line": False}
        elif status.st_size < file["offset"]:
            file |= {"offset": 0, "in_long_line": False}
        file["written"] = status.st_mtime
        if status.st_size > file["offset"]:
            read += self._read_file(path, file, share - read)
        return read

    def _rotated(self, path: Path, inode: list[int]) -> Path | None:
        """The new path of the rotated file: in the same directory, with a name that begins the
        same."""
        for entry in self._entries(path.parent):
            if entry.name.startswith(path.name) and entry.inode() == inode[1]:
                return path.parent / entry.name
        return None

    def _read_file(self, path: Path, file: dict[str, Any], share: int) -> int:
        try:
            with regular(path, follow=False) as (descriptor, status):
                if [status.st_dev, status.st_ino] == file["inode"]:  # not replaced meanwhile
                    return self._within_time(descriptor, file, status.st_size, share)
        except OSError:
            pass
        return 0

    def _within_time(self, descriptor: int, file: dict[str, Any], size: int, share: int) -> int:
        try:
            with _within(self._seconds):
                return self._read_descriptor(descriptor, file, size, share)
        except _TooLong:
            self._skip(file, size)
            return share

    def _read_descriptor(self, descriptor: int, file: dict[str, Any], size: int, share: int) -> int:
        """Read the whole new part, or the first and the last of it up to the limit."""
        share = max(share, 2 * MAX_PENDING)
        read = 0
        behind = size - file["offset"]
        if behind <= share:
            return self._lines(descriptor, file, size)
        read += self._lines(descriptor, file, file["offset"] + share // 2)
        self._skip(file, size - share // 2)
        return read + self._lines(descriptor, file, size)

    def _skip(self, file: dict[str, Any], until: int) -> None:
        if until > file["offset"]:
            self.skipped += until - file["offset"]
            file |= {"offset": until, "in_long_line": True}

    def _lines(self, descriptor: int, file: dict[str, Any], until: int) -> int:
        """Count the lines up to a position; the last one only if it is complete."""
        begin = file["offset"]
        while file["offset"] < until:
            wanted = min(READ, until - file["offset"])
            chunk = os.pread(descriptor, wanted, file["offset"])
            if not chunk:
                break
            used = self._chunk(chunk, file)
            if not used:
                break
            file["offset"] += used
        self.read += file["offset"] - begin
        return int(file["offset"] - begin)

    def _chunk(self, chunk: bytes, file: dict[str, Any]) -> int:
        """Count the complete lines of a chunk; return their bytes."""
        begin = 0
        if file["in_long_line"]:
            begin = chunk.find(b"\n") + 1
            if not begin:
                return len(chunk)
            file["in_long_line"] = False
        end = chunk.rfind(b"\n") + 1
        if end <= begin:
            quiet = time.time() - file["written"] > QUIET_SECONDS
            if len(chunk) - begin < MAX_PENDING and not (quiet and len(chunk) > begin):
                return begin
            end = len(chunk)  # a line without an end: its start is enough
            file["in_long_line"] = True
        lines = cut(chunk[begin:end])
        for pattern in self._patterns:
            for _, line in pattern.lines(lines):
                self._count(file, pattern, line)
        return end

    def _count(self, file: dict[str, Any], pattern: Pattern, line: bytes) -> None:
        now = time.time()
        when = _time_in(line, now)
        names = dict(file["labels"])
        if found := _RANK.match(line):
            names["rank"] = found[1].decode()
        counts = file["counts"]
        key = "\0".join([pattern.name, *(names.get(name, "") for name in LABELS)])
        if key not in counts and len(counts) >= MAX_SERIES:
            key = "\0".join([pattern.name, file["labels"].get("job_id", ""), "", "other"])
        count, first, last = counts.get(key, (0, when, when))
        counts[key] = (count + 1, min(first, when), max(last, when))


class _TooLong(Exception):
    pass


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` after so much CPU time; `re` handles signals while it searches."""

    def stop(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _time_in(line: bytes, now: float) -> float:
    """The time at the start of a line, as Unix time; `now` if there is none, or an impossible
    one."""
    found = _TIME.search(line, 0, 96)
    if found is None:
        return now
    *parts, fraction, utc, sign, hours, minutes = found.groups()
    try:
        naive = datetime(*map(int, parts))  # type: ignore[arg-type]  # six numbers
        if utc or sign:
            offset = (int(hours or 0) * 3600 + int(minutes or 0) * 60) * (-1 if sign == b"-" else 1)
            stamp = naive.replace(tzinfo=timezone.utc).timestamp() - offset
        else:
            stamp = naive.timestamp()  # in this node's time zone
    except (ValueError, OverflowError, OSError):
        return now
    stamp += float(b"0." + fraction) if fraction else 0.0
    return stamp if now - CLOCK_SLACK <= stamp <= now + 1 else now
