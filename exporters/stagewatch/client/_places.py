"""Chooses a directory for the record of this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path

from stagewatch.client._recorder import Recorder
from stagewatch.identity import Identity
from stagewatch.places import private_places
from stagewatch.record import DEFAULT_DIRECTORY

STALE_SECONDS = 3600.0
"""How long the record of a process that was killed is kept in a private directory."""


def begin_record(identity: Identity, directory: str | os.PathLike[str] | None) -> Recorder:
    """Make a record in the given directory, else in the first one that works.

    These are the agent's, `$XDG_RUNTIME_DIR/stagewatch` and `/dev/shm/stagewatch-UID`.  Raises
    `OSError`, with the reason of the first directory that exists.
    """
    named = directory or os.environ.get("STAGEWATCH_DIR")
    if named:
        return Recorder(Path(named), identity)
    problem: OSError | None = None
    for place in (Path(DEFAULT_DIRECTORY), *private_places()):
        try:
            if place != Path(DEFAULT_DIRECTORY):
                prepare(place)
            return Recorder(place, identity)
        except OSError as error:
            if problem is None or isinstance(problem, FileNotFoundError):
                problem = error
    raise problem or OSError("there is no directory for it")


def prepare(place: Path) -> None:
    """Make a private directory, or check that an existing one belongs to this user.

    Nobody else may write to it or replace it: its parent must belong to the user too, or be a
    sticky directory of root.  Raises `OSError`.
    """
    user = os.geteuid()
    above = place.parent.stat()
    sticky = above.st_uid == 0 and above.st_mode & stat.S_ISVTX
    if not sticky and (above.st_uid != user or above.st_mode & 0o022):
        raise PermissionError(f"others may replace what lies in {place.parent}")
    with contextlib.suppress(FileExistsError):
        place.mkdir(0o700)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
        raise PermissionError(f"{place} is not a directory that is this user's alone")
    _tidy(place)


def _tidy(place: Path) -> None:
    """Remove the records of killed processes, as the agent does in its directory."""
    before = time.time() - STALE_SECONDS
    for file in place.glob("*.rank"):
        with contextlib.suppress(OSError):
            if file.lstat().st_mtime > before:
                continue
            fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer lives
                file.unlink()
            finally:
                os.close(fd)
