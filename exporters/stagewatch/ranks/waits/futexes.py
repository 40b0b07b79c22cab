"""Futexes: locks, semaphores and conditions in memory that several processes share; see futex(2).

The holder of a semaphore is recorded nowhere, so a wait for one is for any other process that has
mapped the same memory.  A private futex is between the threads of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids
from stagewatch.ranks.waits.threads import read

MAX_MAP_BYTES = 4 << 20
"""Bytes read of one process's list of mappings: some forty thousand."""
MAX_ALL_BYTES = 64 << 20
SEARCH_SECONDS = 1.0

PRIVATE = 0x80


class Mapping(NamedTuple):
    """The mapping at an address."""

    device: bytes
    inode: bytes
    name: str
    shared: bool


class Futexes:
    """Finds who shares the memory of a futex, among the `candidates` whose mappings may be read."""

    def __init__(self, proc: Procfs, candidates: Callable[[int], Iterable[int]]) -> None:
        self._proc = proc
        self._candidates = candidates
        self._maps: dict[int, bytes | None] = {}
        self._read = 0

    def other_end(self, pid: int, address: int, operation: int, value: int) -> OtherEnd:
        """The processes that may wake a thread of a process.

        To join a thread, the C library uses a futex that is not private, whose value is the number
        of the thread; see `__pthread_clockjoin_ex` in glibc's nptl/pthread_join_common.c.
        """
        if operation & PRIVATE:
            return OtherEnd(Kind.OWN, "a lock or an event of its own threads", own=True)
        maps = self._of(pid)
        if maps is None:
            return OtherEnd(Kind.FUTEX, "a lock, in memory whose mappings may not be seen")
        at = _find(maps, address)
        if at is None or not at.shared:
            joined = self._proc.task_named(pid, value & 0xFFFFFFFF)
            if joined is not None:
                return OtherEnd(Kind.OWN, f"the end of its thread {joined}", own=True)
            return OtherEnd(Kind.OWN, "a lock or an event of its own threads", own=True)
        needle = b" %b %b " % (at.device, at.inode)
        others = frozenset(
            other
            for other in self._candidates(pid)
            if other != pid and needle in (self._of(other) or b"")
        )
        if others:
            words = f"a lock or semaphore in memory that it shares with {name_pids(others)}"
            return OtherEnd(Kind.FUTEX, words, others)
        return OtherEnd(Kind.OWN, "a lock in shared memory that nobody else has mapped", own=True)

    def _of(self, pid: int) -> bytes | None:
        if pid not in self._maps:
            path = f"{self._proc.root}/{pid}/maps"
            limit = min(MAX_MAP_BYTES, MAX_ALL_BYTES - self._read)
            raw = self._proc.patiently(pid, lambda: read(path, limit), SEARCH_SECONDS)
            self._read += len(raw or b"")
            self._maps[pid] = raw
        return self._maps[pid]


def _find(maps: bytes, address: int) -> Mapping | None:
    """The mapping that an address lies in."""
    for line in _lines(maps):
        begin, _, rest = line.partition(b"-")
        end, _, rest = rest.partition(b" ")
        if int(begin, 16) <= address < int(end, 16):
            words = rest.split(None, 4)
            name = words[4].decode("utf-8", "replace").strip() if len(words) > 4 else ""
            return Mapping(words[2], words[3], name, words[0].endswith(b"s"))
    return None


def _lines(maps: bytes) -> Iterator[bytes]:
    for line in maps.split(b"\n")[:-1]:
        if line.count(b" ") >= 4 and b"-" in line:
            yield line
