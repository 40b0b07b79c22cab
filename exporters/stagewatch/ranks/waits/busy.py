"""Where a busy thread runs: samples of its instruction pointer, by library.

A rank that computes, one that polls for its peers and one that loops in Python use a core alike;
the library that they are in tells them apart.  See perf_event_open(2): a software clock, which
works in virtual machines, of one thread, in user space alone.  It takes CAP_PERFMON for processes
of other users, or where kernel.perf_event_paranoid is above 2.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum

MAX_THREADS = 32
"""Sampled at a time; each takes 36 KiB and little else."""
PERIOD_NANOSECONDS = 4_000_000
"""Of CPU time between two samples."""
MIN_SAMPLES = 10
"""Fewer say nothing."""
MAX_LIBRARIES = 4
"""Told of a thread."""

_NUMBERS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE = struct.Struct("=IIQQQQQIIQ")
"""type, size, config, sample_period, sample_type, read_format, flags, wake-up, two that count not;
`PERF_ATTR_SIZE_VER0` in linux/perf_event.h"""
_SOFTWARE, _CPU_CLOCK, _SAMPLE_IP = 1, 0, 1
_USER_SPACE_ALONE = 1 << 5 | 1 << 6
_PAGES = 8
_HEAD_AT, _HEADER, _RECORD_SAMPLE = 1024, struct.Struct("=IHH"), 9
_CLOSE_ON_EXEC = 8

_libc = ctypes.CDLL(None, use_errno=True)


class Doing(str, Enum):
    """What a library is busy with."""

    POLLING = "polling"
    """It asks again and again whether its peers have come."""
    COMPUTING = "computing"
    DEVICE = "device"
    """It waits for the GPU."""
    PYTHON = "python"
    """The interpreter runs Python code."""
    OTHER = "other"


_LIBRARIES = {
    Doing.POLLING: r"libnccl|librccl|libuc[mpst]\b|libfabric|libmpi|libopen-|libpsm|libibverbs",
    Doing.COMPUTING: r"libtorch_cpu|libmkl|libopenblas|libblis|libgomp|libiomp|_multiarray",
    Doing.DEVICE: r"libcuda\.|libcudart|libnvidia-|libamdhip|libhsa",
    Doing.PYTHON: r"libpython|python3(\.\d+)?$",
}


def doing(library: str) -> Doing:
    """What a library is busy with, by its name."""
    return next((one for one, names in _LIBRARIES.items() if re.match(names, library)), Doing.OTHER)


class Samples:
    """Samples some threads from its making until they are read."""

    def __init__(self, tasks: Iterable[int]) -> None:
        self._rings: dict[int, tuple[int, mmap.mmap]] = {}
        self.problem = ""
        """Why a thread is not sampled; empty if all are."""
        for task in list(tasks)[:MAX_THREADS]:
            try:
                self._rings[task] = _open(task)
            except OSError as error:
                self.problem = f"where it runs: {error.strerror}"

    def read(self) -> dict[int, list[int]]:
        """The instruction pointers seen of each thread."""
        return {task: list(_pointers(ring)) for task, (_, ring) in self._rings.items()}

    def close(self) -> None:
        """End it."""
        for descriptor, ring in self._rings.values():
            ring.close()
            os.close(descriptor)
        self._rings.clear()


def libraries(pointers: Iterable[int], maps: bytes) -> tuple[tuple[str, float], ...]:
    """The libraries that a thread runs in most, with the share of its samples, given the mappings
    of its process; empty where there are too few samples."""
    starts, ends, names = [], [], []
    for line in maps.decode("utf-8", "replace").splitlines():
        words = line.split(None, 5)
        if len(words) > 4 and "x" in words[1]:
            start, _, end = words[0].partition("-")
            starts.append(int(start, 16))
            ends.append(int(end, 16))
            names.append(
                words[5].rpartition("/")[2] if len(words) > 5 else "code made while running"
            )
    seen: Counter[str] = Counter()
    for pointer in pointers:
        place = bisect_right(starts, pointer) - 1
        seen[names[place] if place >= 0 and pointer < ends[place] else "unknown"] += 1
    total = sum(seen.values())
    if total < MIN_SAMPLES:
        return ()
    return tuple((name, round(n / total, 2)) for name, n in seen.most_common(MAX_LIBRARIES))


def _open(task: int) -> tuple[int, mmap.mmap]:
    number = _NUMBERS.get(os.uname().machine)
    if number is None:
        raise OSError(0, "not on this kind of machine")
    attribute = _ATTRIBUTE.pack(
        *(_SOFTWARE, _ATTRIBUTE.size, _CPU_CLOCK, PERIOD_NANOSECONDS, _SAMPLE_IP),
        *(0, _USER_SPACE_ALONE, 0, 0, 0),
    )
    descriptor = _libc.syscall(number, attribute, task, -1, -1, _CLOSE_ON_EXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        return descriptor, mmap.mmap(descriptor, (1 + _PAGES) * mmap.PAGESIZE)
    except OSError:
        os.close(descriptor)
        raise


def _pointers(ring: mmap.mmap) -> Iterator[int]:
    """What the kernel has written; it stops where the ring is full."""
    (head,) = struct.unpack_from("=Q", ring, _HEAD_AT)
    data = ring[mmap.PAGESIZE :][:head]
    at = 0
    with suppress(struct.error):
        while at < len(data):
            kind, _, length = _HEADER.unpack_from(data, at)
            if length < _HEADER.size:
                return
            if kind == _RECORD_SAMPLE:
                yield struct.unpack_from("=Q", data, at + _HEADER.size)[0]
            at += length
