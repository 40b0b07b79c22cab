"""Where a queue is, and how processes that nobody has introduced find the parts of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

_SemLock: Any = import_module("_multiprocessing").SemLock
_SHARED_MEMORY = Path("/dev/shm")
_STARTS_SECONDS = 60.0
_SEMAPHORE = 1
"""`multiprocessing.synchronize.SEMAPHORE`: whoever likes may release it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A queue of one generation of a job."""

    directory: Path
    """Of the job."""
    generation: int
    index: int
    """Of the queue among those of the job."""
    depth: int
    """How many may wait in it."""

    @property
    def _key(self) -> str:
        return f"{self.generation}.{self.index}"

    @contextlib.contextmanager
    def locked(self, what: str) -> Iterator[Path]:
        """The path of a file of this queue, while no other process is in here."""
        path = self.directory / f"queue.{self._key}.{what}"
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield path


def tell_port(directory: Path, broker: str, port: int) -> None:
    """Say where a broker of a job listens."""
    file = _port_file(directory, broker)
    fresh = file.with_suffix(".new")
    fresh.write_text(str(port))
    fresh.rename(file)


def port_within(directory: Path, broker: str) -> int:
    """Where it listens, once it does."""
    file, limit = _port_file(directory, broker), time.monotonic() + _STARTS_SECONDS
    while not file.exists():
        if time.monotonic() > limit:
            raise TimeoutError("the broker has not started")
        time.sleep(0.05)
    return int(file.read_text())


def _port_file(directory: Path, broker: str) -> Path:
    return directory / f"broker.{broker}.port"


def pipe(place: Place) -> tuple[int, int]:
    """Descriptors of both ends of the queue's pipe, which the first process makes and every other
    opens anew through one that has it, so that nobody but them holds it."""
    with place.locked("pipe") as path:
        for line in path.read_text().splitlines():
            pid, reader, writer = line.split()
            with contextlib.suppress(OSError):
                there = Path("/proc", pid, "fd")
                ends = os.open(there / reader, os.O_RDONLY), os.open(there / writer, os.O_WRONLY)
                break
        else:
            ends = os.pipe()
        with path.open("a") as file:
            file.write(f"{os.getpid()} {ends[0]} {ends[1]}\n")
    return ends


def semaphore_state(place: Place, what: str, value: int) -> tuple[int, int, int, str]:
    """What `multiprocessing` pickles of one of the queue's semaphores, in shared memory, which the
    first process makes with a value: no handle, kind, greatest value, name."""
    name = f"{_prefix(place.directory)}{place.generation}.{place.index}.{what}"
    most = _SemLock.SEM_VALUE_MAX
    with place.locked("semaphores"):
        if not (_SHARED_MEMORY / f"sem.{name[1:]}").exists():
            _SemLock(_SEMAPHORE, value, most, name, False)
    return -1, _SEMAPHORE, most, name


def semaphore(place: Place, what: str, value: int) -> Any:
    """A semaphore as of `multiprocessing`, without what that puts around it."""
    return _SemLock._rebuild(*semaphore_state(place, what, value))


def clean(directory: Path) -> None:
    """Remove the semaphores of a job that has ended."""
    for file in _SHARED_MEMORY.glob(f"sem.{_prefix(directory)[1:]}*"):
        file.unlink(missing_ok=True)


def _prefix(directory: Path) -> str:
    return f"/hangbench-{zlib.crc32(os.fsencode(directory)):08x}-"
