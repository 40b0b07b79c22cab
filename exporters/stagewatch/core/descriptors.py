"""Descriptors of files, some of which anybody may have put where they lie.

Standard library only, for helpers too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """A descriptor that is closed at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_up_to(descriptor: int, limit: int) -> bytes:
    """The next bytes of a file, at most so many: short reads are not its end.  Raises `OSError`."""
    parts = []
    while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 16))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


@contextmanager
def regular(path: Path, *, follow: bool = True) -> Iterator[tuple[int, os.stat_result]]:
    """A regular file to read, by its descriptor, and its status.

    Opening waits for no writer of a pipe and takes no terminal; without `follow` the name may not
    be a symbolic link.  Raises `OSError`, also where it is no regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with closing(os.open(path, flags if follow else flags | os.O_NOFOLLOW)) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "no regular file")
        yield descriptor, status
