"""Lists the private directories in which ranks keep records if no agent has made a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from stagewatch.core.descriptors import closing
from stagewatch.host.mounts import memory_mounts, mount_id, pin
from stagewatch.places import MEMORY, NAME, private_places

RUNTIME = Path("/run/user")
"""Contains a directory for each user who is logged in; see file-hierarchy(7)."""
MAX_PLACES = 64
MAX_LOOKED_AT = 65_536
"""The most names in one directory that are looked at to find other users' directories."""


def readable_places() -> list[Path]:
    """The user's own directories, then those of others that may be read.

    A directory of another user must be in memory: on a file system that this user serves, it could
    hang its reader.  A user has at most one in each of the two parents.
    """
    own = private_places()
    places = dict.fromkeys(place for place in own if place.is_dir())
    for user, place in _of_users():
        if len(places) >= MAX_PLACES:
            break
        if _belongs(place, user):
            places[place] = None
    return list(places)


@contextmanager
def pinned(place: Path) -> Iterator[int]:
    """A descriptor that stands for a private directory, which is the user's own or in memory.

    Raises `OSError` otherwise.  At any moment, its owner may mount a file system there or over its
    parent, so that file system is not used.
    """
    if place in private_places():
        with closing(pin(place, os.O_DIRECTORY)) as found:
            yield found
        return
    memory = memory_mounts()
    with closing(pin(place.parent, os.O_DIRECTORY)) as parent:
        _check_memory(parent, memory, place)
        with closing(pin(Path(place.name), os.O_DIRECTORY, dir_fd=parent)) as found:
            _check_memory(found, memory, place)
            yield found


def _check_memory(descriptor: int, memory: frozenset[int], place: Path) -> None:
    if mount_id(descriptor) not in memory:
        raise OSError(f"{place} is not in memory")


def _of_users() -> Iterator[tuple[str, Path]]:
    for user in _names(RUNTIME):
        if user.isdecimal():
            yield user, RUNTIME / user / NAME
    for name in _names(MEMORY):
        user = name.removeprefix(f"{NAME}-")
        if user != name and user.isdecimal():
            yield user, MEMORY / name


def _names(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            yield from (entry.name for entry in islice(entries, MAX_LOOKED_AT))
    except OSError:
        return


def _belongs(place: Path, user: str) -> bool:
    """Whether a place is a directory in memory of this user that may be listed."""
    try:
        with pinned(place) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISDIR(status.st_mode) or str(status.st_uid) != user:
                return False
            path = f"/proc/self/fd/{descriptor}"
            return os.access(path, os.R_OK | os.X_OK, effective_ids=True)
    except OSError:
        return False
