"""The canary: writes, syncs, reads back and removes a small file, and times every phase.

Runs in a worker of the helper process, since any of its calls may block for ever; standard library
only.  An error is a result: the phase that failed, and its errno.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stagewatch.core.children.worker import Report
from stagewatch.core.descriptors import closing, read_up_to

CHUNK = 1 << 20
SYNC_EVERY = 8 << 20
"""The larger write is synced every so many bytes, or it would measure the page cache."""
LARGE_SECONDS = 10.0
"""The larger write stops after this time: on a slow mount fewer bytes are enough."""
MISMATCH = "mismatch"
"""Stands for an errno: the file has other bytes than were written."""


class _Failed(Exception):
    """The file read back has other bytes."""


def run(
    arguments: dict[str, Any], leftover: dict[str, Any] | None, report: Report
) -> dict[str, Any]:
    """One canary in `directory`; the result's parts are described in `stagewatch.storage.canary`.

    Arguments: directory, bytes, floor_bytes, large_bytes (0 for none), large_interval (seconds).
    """
    canary = _Canary(arguments, report)
    interval = arguments["large_interval"]
    large = leftover or {"begun": None, "measured": None, "bandwidth": None}
    try:
        canary.small()
        now = time.monotonic()
        due = large["begun"] is None or now - large["begun"] >= interval
        if arguments["large_bytes"] and due:
            large["begun"] = now
            report.keep(large)  # before it begins: if it hangs once, it is not tried on every run
            bandwidth = canary.large()
            if bandwidth is not None:
                large["bandwidth"], large["measured"] = bandwidth, time.monotonic()
                report.keep(large)
    except (OSError, _Failed) as error:
        name = errno.errorcode.get(getattr(error, "errno", None) or 0, MISMATCH)
        canary.result["error"] = {"phase": canary.phase, "error": name}
    finally:
        canary.clean()
    if large["measured"] is not None and time.monotonic() - large["measured"] < 3 * interval:
        canary.result["bandwidth"] = large["bandwidth"]
    return canary.result


class _Canary:
    def __init__(self, arguments: dict[str, Any], report: Report) -> None:
        self.directory = Path(arguments["directory"])
        self.bytes: int = arguments["bytes"]
        self.large_bytes: int = arguments["large_bytes"]
        self.floor: int = arguments["floor_bytes"]
        self.result: dict[str, Any] = {"seconds": {}}
        self.phase = ""
        self._report = report
        self._path: Path | None = None

    @contextlib.contextmanager
    def _phase(self, name: str, *, timed: bool = True) -> Iterator[None]:
        self.phase = name
        self._report.phase(name)
        began = time.monotonic()
        yield
        if timed:
            self.result["seconds"][name] = time.monotonic() - began

    def small(self) -> None:
        """Write the canary itself, if there is room for it."""
        available = self._space()
        if available < self.floor + self.bytes:
            self.result["skipped"] = "below_floor"
            return
        content = os.urandom(self.bytes)  # nothing that could be compressed or shared
        with self._phase("open"):
            descriptor = self._create()
        with closing(descriptor):
            with self._phase("write"):
                _write(descriptor, content)
            with self._phase("fsync"):
                os.fsync(descriptor)
            _forget(descriptor)
            with self._phase("read"):
                # Through the descriptor that wrote it: another file may have the name by now.
                os.lseek(descriptor, 0, os.SEEK_SET)
                found = read_up_to(descriptor, self.bytes + 1)
        if found != content:
            raise _Failed
        with self._phase("unlink"):
            self._remove()

    def large(self) -> dict[str, float] | None:
        """The throughput of a larger file in the same place, after the small one was removed."""
        if "skipped" in self.result or self._space() < self.floor + self.large_bytes:
            return None
        content = os.urandom(CHUNK)
        with self._phase("open", timed=False):
            descriptor = self._create()
        with closing(descriptor):
            with self._phase("large_write", timed=False):
                began = time.monotonic()
                written = self._fill(descriptor, content)
                write_seconds = time.monotonic() - began
            _forget(descriptor)
            with self._phase("large_read", timed=False):
                began = time.monotonic()
                os.lseek(descriptor, 0, os.SEEK_SET)
                while os.read(descriptor, CHUNK):
                    pass
                read_seconds = time.monotonic() - began
        with self._phase("unlink", timed=False):
            self._remove()
        return {
            "write": written / max(write_seconds, 1e-6),
            "read": written / max(read_seconds, 1e-6),
        }

    def _fill(self, descriptor: int, content: bytes) -> int:
        """Write a file of the large size, synced as it grows; returns the bytes written."""
        written = 0
        end = time.monotonic() + LARGE_SECONDS
        while written < self.large_bytes and time.monotonic() < end:
            part = content[: min(CHUNK, self.large_bytes - written)]
            _write(descriptor, part)
            written += len(part)
            if written % SYNC_EVERY == 0:
                os.fdatasync(descriptor)
        os.fsync(descriptor)
        return written

    def clean(self) -> None:
        """Remove the file of a failed run."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._remove()

    def _space(self) -> int:
        """The number of bytes that may still be written; also notes the free space."""
        with self._phase("statvfs"):
            found = os.statvfs(self.directory)
        self.result["space"] = {
            "size": found.f_blocks * found.f_frsize,
            "available": found.f_bavail * found.f_frsize,
            "files": found.f_files,
            "files_free": found.f_ffree,
            "read_only": bool(found.f_flag & os.ST_RDONLY),
        }
        available: int = found.f_bavail * found.f_frsize
        return available

    def _create(self) -> int:
        """A new file, never somebody else's.

        The name is always the same: a run that was killed leaves at most one file, and the next run
        removes it.  If another user has a file of that name, the name is random.
        """
        node = re.sub(r"[^\w.-]", "_", os.uname().nodename)[:64]
        path = self.directory / f".stagewatch-canary-{node}"
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                path.unlink()
            else:
                path = path.with_name(f"{path.name}-{os.urandom(6).hex()}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        self._path = path
        return descriptor

    def _remove(self) -> None:
        assert self._path is not None  # noqa: S101 - created before
        self._path.unlink()
        self._path = None


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _forget(descriptor: int) -> None:
    """Ask the kernel to drop the pages, so that the storage is read and not the cache."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
