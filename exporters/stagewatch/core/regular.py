"""Opens files that anybody may have put where they lie; standard library only, for helpers too."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def regular(path: Path, *, follow: bool = True) -> Iterator[tuple[int, os.stat_result]]:
    """A regular file to read, by its descriptor, and its status.

    Opening waits for no writer of a pipe and takes no terminal; without `follow` the name may not
    be a symbolic link.  Raises `OSError`, also where it is no regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "no regular file")
        yield descriptor, status
    finally:
        os.close(descriptor)
