"""The kernel log as records, from `/dev/kmsg`, without waiting.

Format: Documentation/ABI/testing/dev-kmsg.  Each read gives one record,
`priority,sequence,microseconds,flags[,...];text`, then lines that begin with a space.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import SourceError

_HEAD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]*;(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
KERNEL_LOG = Path("/dev/kmsg")
MAX_RECORD = 8192
MAX_BATCH = 20_000
"""Most records read in one call; the next calls catch up with a flood."""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One message of the kernel log."""

    sequence: int
    time: float
    """Unix time, seconds."""
    facility: int
    """0 is the kernel itself; anything else was written to the log from user space."""
    text: str


class Kmsg:
    """The log from a sequence number on.  An ordinary file with one record per line works too.

    If the agent may not open the kernel's log itself, `privileged` opens it.
    """

    def __init__(
        self,
        path: Path = KERNEL_LOG,
        *,
        privileged: Callable[[], int] | None = None,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._privileged = privileged if path == KERNEL_LOG else None
        self._uptime = uptime
        self._file: int | None = None
        self._rest = b""
        self.last: int | None = None
        """Sequence number of the last record read or skipped."""

    def read(self) -> Iterator[KernelRecord]:
        """The records since the last call, or since `last`.

        Raises `SourceError` if the log may not be read or there is none.
        """
        if self._file is None:
            self._open()
        newest = None
        for _ in range(MAX_BATCH):
            raw = self._next()
            if raw is None:
                if newest is not None and self.last is not None and newest < self.last:
                    self.last = newest  # numbers only grow: the saved one is not from this log
                return
            record = self._parse(raw)
            newest = newest if record is None else record.sequence
            if record is None or (self.last is not None and record.sequence <= self.last):
                continue
            self.last = record.sequence
            yield record

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        try:
            if self._privileged is not None:
                self._file = self._privileged()
            else:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            hint = " (needs CAP_SYSLOG)" if error.errno in (errno.EPERM, errno.EACCES) else ""
            raise SourceError(f"{self._path}: {error.strerror}{hint}") from error
        self._rest = b""

    def _next(self) -> bytes | None:
        assert self._file is not None  # noqa: S101 - opened by read()
        while (end := self._rest.find(b"\n")) < 0:
            try:
                got = os.read(self._file, MAX_RECORD)
            except BlockingIOError:
                return None
            except BrokenPipeError:  # overwritten; the next read gives the oldest there is
                continue
            except OSError as error:
                self.close()
                raise SourceError(f"{self._path}: {error.strerror}") from error
            if not got:
                return None
            self._rest += got
        line, self._rest = self._rest[:end], self._rest[end + 1 :]
        return line

    def _parse(self, raw: bytes) -> KernelRecord | None:
        match = _HEAD.match(raw)  # lines of details begin with a space and do not match
        if match is None:
            return None
        age = self._uptime() - int(match[3]) / 1e6
        text = match[4].decode("utf-8", "replace")
        with contextlib.suppress(ValueError):
            text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
        sequence = int(match[2])
        return KernelRecord(sequence, time.time() - age, int(match[1]) >> 3, text)
