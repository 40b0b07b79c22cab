"""Bytes that the processes of every rank have read and written, for several collectors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagewatch.host.guarded import Files
from stagewatch.ranks.families import Families, ProcessFamilies

IoCounters = Mapping[tuple[str, str], int]
"""Bytes by direction (read, write) and layer (call, storage)."""


def parse_io(raw: bytes) -> IoCounters | None:
    """Bytes that a process, and the children it has waited for, have read and written.

    From `/proc/<pid>/io`, see proc_pid_io(5).  `None` if the process is gone or hidden.
    """
    try:
        counters = {k: int(v) for k, v in (line.split(b": ") for line in raw.splitlines())}
        return {
            ("read", "call"): counters[b"rchar"],
            ("write", "call"): counters[b"wchar"],
            ("read", "storage"): counters[b"read_bytes"],
            # Dirty pages, less those that were taken back before they were written.
            ("write", "storage"): max(
                0, counters[b"write_bytes"] - counters[b"cancelled_write_bytes"]
            ),
        }
    except (ValueError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class FamilyCounters:
    """The families at one moment, and the counters of their members that may be read."""

    families: Families
    by_pid: Mapping[int, IoCounters]
    denied: int = 0
    """Members whose counters may not be read."""


class FamilyIo:
    """Shares one look at the counters of all families, for `fresh_for` seconds."""

    def __init__(
        self,
        families: ProcessFamilies,
        files: Files,
        *,
        fresh_for: float = 4.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._families = families
        self._files = files
        self._fresh_for = fresh_for
        self._clock = clock
        self._lock = threading.Lock()
        self._last: tuple[float, FamilyCounters] | None = None

    def look(self) -> FamilyCounters:
        """The counters as they were at most a few seconds ago.

        Raises `SourceError` if the child that reads them does not answer.
        """
        with self._lock:
            now = self._clock()
            if self._last is None or now - self._last[0] >= self._fresh_for:
                families = self._families.look()
                read = self._files.read("io", families.rank_of)
                counters = ((pid, parse_io(raw or b"")) for pid, raw in read.items())
                by_pid = {pid: found for pid, found in counters if found is not None}
                denied = sum(raw is None for raw in read.values())
                self._last = now, FamilyCounters(families, by_pid, denied)
            return self._last[1]
