"""Finds the files of our profiler plugin for NCCL beside the stage records, and their writers.

They are read when a job is suspected; no file stays open between two looks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from stagewatch.core.descriptors import closing
from stagewatch.host.mounts import pin
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.nccl.layout import PLUGIN, SIZE, Communicator, CorruptFile, parse
from stagewatch.ranks.places import pinned, readable_places
from stagewatch.ranks.record_directory import GRACE_SECONDS, NCCL_NAME, lock_holder, open_inside
from stagewatch.record import DEFAULT_DIRECTORY

MAX_ENTRIES = 8192
"""Most directory entries looked at in one pass."""
MAX_FILES = 512
MAX_COMMUNICATORS = 8
"""The most communicators of one rank that are reported; those with an open operation come first."""

ByProcess = Mapping[int, tuple[Communicator, ...]]
"""Communicators by pid."""


class NcclFiles:
    """The files of one node."""

    def __init__(
        self,
        directory: Path,
        proc: Procfs,
        *,
        private: Callable[[], list[Path]] = list,
    ) -> None:
        """`private` lists the private directories of users."""
        self._directory = directory
        self._list_private = private
        self._proc = proc

    def read(self, pids: Collection[int]) -> dict[int, tuple[Communicator, ...]]:
        """The communicators of these processes, as far as they run the plugin.

        The plugin makes one file, so only the first file of a process is read.
        """
        found: dict[int, tuple[Communicator, ...]] = {}
        for _, _, fd in self._opened() if pids else ():
            with contextlib.suppress(CorruptFile, OSError):
                _, pid = lock_holder(fd)
                mine = pid in pids and self._proc.uid(pid) == os.fstat(fd).st_uid
                if mine and pid not in found:
                    found[pid] = ()
                    found[pid] = _most_telling(parse(os.pread(fd, SIZE + 1, 0)))
        return found

    def tidy(self) -> None:
        """Remove old files of killed processes, as far as we may."""
        for directory, name, fd in self._opened():
            with contextlib.suppress(OSError):
                old = time.time() - os.fstat(fd).st_ctime > GRACE_SECONDS
                if old and not lock_holder(fd)[0]:
                    os.unlink(name, dir_fd=directory)

    def _opened(self) -> Iterator[tuple[int, str, int]]:
        """Directory, name and descriptor of each file that may be the plugin's."""
        left = MAX_FILES
        with (
            contextlib.suppress(OSError),
            closing(pin(self._directory, os.O_DIRECTORY)) as directory,
        ):
            for one in _inside(directory, left):
                left -= 1
                yield one
        for place in self._list_private():
            with contextlib.suppress(OSError), pinned(place) as directory:
                for one in _inside(directory, left):
                    left -= 1
                    yield one


def _inside(directory: int, most: int) -> Iterator[tuple[int, str, int]]:
    with os.scandir(f"/proc/self/fd/{directory}") as entries:
        names = [one.name for one in islice(entries, MAX_ENTRIES) if NCCL_NAME.fullmatch(one.name)]
    for name in sorted(names)[: max(0, most)]:
        fd = open_inside(directory, Path(name))
        if isinstance(fd, str):
            continue
        with closing(fd):
            yield directory, name, fd


def nccl_files(record_dir: Path, proc: Procfs) -> NcclFiles:
    """The files beside the records of a directory; for the default directory, also those of private
    directories."""
    ordinary = record_dir == Path(DEFAULT_DIRECTORY)
    return NcclFiles(record_dir, proc, private=readable_places if ordinary else list)


def _most_telling(communicators: Collection[Communicator]) -> tuple[Communicator, ...]:
    first = sorted(communicators, key=lambda one: (one.state == "idle", one.id, one.member))
    return tuple(first[:MAX_COMMUNICATORS])


def unmoved(before: ByProcess, now: ByProcess) -> dict[int, tuple[Communicator, ...]]:
    """The communicators that have not moved between two looks."""
    return {
        pid: tuple(one for one in those if one in before.get(pid, ())) for pid, those in now.items()
    }


def by_others(communicators: Iterable[Communicator]) -> tuple[Communicator, ...]:
    """The communicators that other libraries than the plugin show; these are asked only once."""
    return tuple(one for one in communicators if one.witness != PLUGIN)
