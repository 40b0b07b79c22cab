"""Lists the private directories in which users' ranks keep records where no agent made one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from stagewatch.host.mounts import mount_of, read_mounts
from stagewatch.places import MEMORY, NAME, private_places

RUNTIME = Path("/run/user")
"""Holds a directory for each user who is logged in; see file-hierarchy(7)."""
MAX_PLACES = 64
MAX_LOOKED_AT = 65_536
"""Most names in one directory that are looked at to find others' places."""


def readable_places() -> list[Path]:
    """The user's own directories, then others' that may be read: as root, or where an owner lets.

    Another user's must lie in memory: one on a file system that the user serves could hang its
    reader.  A user has one at most in each of the two parents.
    """
    own = private_places()
    places = dict.fromkeys(place for place in own if place.is_dir())
    mounts = read_mounts(Path("/proc/self/mountinfo"))
    for user, place in _of_users():
        mount = mount_of(place, mounts)
        if len(places) >= MAX_PLACES:
            break
        if mount is not None and mount.fstype == "tmpfs" and _belongs(place, user):
            places[place] = None
    return list(places)


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
    """Whether it is a directory of that user, which may be listed."""
    try:
        status = place.lstat()
    except OSError:
        return False
    own = stat.S_ISDIR(status.st_mode) and str(status.st_uid) == user
    return own and os.access(place, os.R_OK | os.X_OK, effective_ids=True)
