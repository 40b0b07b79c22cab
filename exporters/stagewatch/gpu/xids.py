"""The ledger of GPU errors (XIDs): two sources report them, and every error counts once.

The driver announces most XIDs as NVML events, and prints all of them to the kernel log.  Events
miss some XIDs and all history; the log may be unreadable. Two reports from different sources are
one error if XID and GPU agree and they are at most `WINDOW_SECONDS` apart. A report matches only
one error, so repeated errors count.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from stagewatch.core.state_file import Past

WINDOW_SECONDS = 10.0
"""Largest time between two reports of the same error."""

MAX_KINDS = 2000
"""Most (GPU, XID, severity) combinations; there are never that many."""

MAX_RECENT = 1000
"""Most errors of one kind that a late report is compared with."""

Source = Literal["nvml", "kmsg", "text"]
_BY_MESSAGE = range(144, 151)


def bus_key(bus_id: str) -> str:
    """A PCI address without function, in the same form for every source: `0000:3b:00`.

    NVML writes the domain with eight digits, the kernel with four; upper and lower case vary.
    """
    parts = bus_id.lower().removeprefix("pci:").split(".")[0].split(":")
    if len(parts) != 3:
        return bus_id.lower()
    return f"{parts[0].lstrip('0').rjust(4, '0')}:{parts[1]}:{parts[2]}"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of an XID and the action to take, from `xids.json`."""

    severity: str
    action: str
    meaning: str


UNKNOWN = Meaning("unknown", "look_up", "not in the table")


@cache
def catalogue() -> dict[int, Meaning]:
    """All XIDs of the table, by number."""
    text = files("stagewatch.gpu").joinpath("xids.json").read_text("utf-8")
    return {int(xid): Meaning(**entry) for xid, entry in json.loads(text)["xids"].items()}


def meaning(xid: int) -> Meaning:
    """The meaning of an XID, by the table."""
    return catalogue().get(xid, UNKNOWN)


@dataclass(slots=True)
class Seen:
    """One kind of error on one GPU."""

    bus: str
    xid: int
    severity: str
    count: int = 0
    last: Past = 0.0
    """Unix time, seconds."""


@dataclass(slots=True)
class _Error:
    """One counted error, and the sources that have reported it so far."""

    time: float
    sources: set[Source]


class XidLedger:
    """All XIDs of this boot. The `gpu` and `kmsg` collectors write to it, each in its own "
    "thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str], Seen] = {}
        self._recent: dict[tuple[str, int], deque[_Error]] = {}
        self._gpus: dict[str, tuple[str, str]] = {}
        self.log_is_read = False
        """Whether the kernel log is being read, so that it holds every XID."""

    def note(
        self, source: Source, bus: str, xid: int, when: float, *, nonfatal: bool = False
    ) -> None:
        """Add one report, with the address in the form of `bus_key`."""
        if source == "nvml" and xid in _BY_MESSAGE and self.log_is_read:
            return  # whether it is fatal stands in its message alone
        severity = "warning" if nonfatal else meaning(xid).severity
        with self._lock:
            if not self._is_new(source, (bus, xid), when):
                return
            kind = (bus, xid, severity)
            if kind not in self._seen and len(self._seen) >= MAX_KINDS:
                return
            seen = self._seen.setdefault(kind, Seen(bus, xid, severity))
            seen.count += 1
            seen.last = max(seen.last, when)

    def identify(self, bus: str, gpu: str, uuid: str) -> None:
        """Record which GPU is at this address; the kernel log records it first, without the "
        "index."""
        with self._lock:
            if gpu or bus not in self._gpus:
                self._gpus[bus] = (gpu, uuid)

    def identity(self, bus: str) -> tuple[str, str]:
        """NVML index and UUID of the GPU at this address, empty if unknown."""
        return self._gpus.get(bus, ("", ""))

    def __iter__(self) -> Iterator[Seen]:
        with self._lock:
            return iter([replace(seen) for seen in self._seen.values()])

    def restore(self, seen: Iterable[Seen]) -> None:
        """Restore the counts from before a restart of the agent."""
        with self._lock:
            for one in seen:
                self._seen[one.bus, one.xid, one.severity] = one

    def _is_new(self, source: Source, key: tuple[str, int], when: float) -> bool:
        recent = self._recent.setdefault(key, deque(maxlen=MAX_RECENT))
        while recent and when - recent[0].time > WINDOW_SECONDS:
            recent.popleft()
        for error in recent:
            if source not in error.sources and abs(when - error.time) <= WINDOW_SECONDS:
                error.sources.add(source)
                return False
        recent.append(_Error(when, {source}))
        return True
