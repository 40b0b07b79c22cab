"""The files of one checkpoint, with their sizes, and how to open one of them safely."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from stagewatch.core.descriptors import regular

MAX_DEPTH = 6
MAX_FILES = 200_000


class TooMany(Exception):
    """A checkpoint has more entries than the limit."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Sizes by name, relative to `root`; directories are not followed through symbolic links."""

    root: Path
    sizes: dict[str, int]
    unreadable: list[str] = field(default_factory=list)
    """Directories that may not be read."""

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open one of the files to read.  Raises `OSError`, also if it is no regular file now."""
        with (
            regular(self.root / name) as (descriptor, _),
            os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file,
        ):
            yield file

    def text(self, name: str, most: int) -> str | None:
        """The text of a small file; `None` if it does not exist or cannot be read."""
        if not 0 < self.sizes.get(name, 0) <= most:
            return None
        try:
            with self.open(name) as file:
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return None


def inventory(root: Path, paths: Iterable[Path], *, follow: bool) -> Inventory:
    """The files at these paths below `root`, which may be files or directories.

    `follow`: symbolic links to files count as files, as in a cache of Hugging Face.  Raises
    `TooMany`, and `OSError` if there is nothing.
    """
    found = Inventory(root, {})
    waiting = [(path, 0) for path in paths]
    looked = 0
    while waiting:
        path, depth = waiting.pop()
        name = str(path.relative_to(root))
        looked += 1
        if looked + len(waiting) > MAX_FILES:
            raise TooMany(f"more than {MAX_FILES} entries")
        try:
            status = path.lstat()
            if follow and stat.S_ISLNK(status.st_mode):
                status = path.stat()
                status = status if stat.S_ISREG(status.st_mode) else path.lstat()
            if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                for entry in path.iterdir():
                    waiting.append((entry, depth + 1))
                    if len(waiting) > MAX_FILES:
                        break
            elif stat.S_ISREG(status.st_mode):
                found.sizes[name] = status.st_size
        except OSError:
            if depth == 0:
                raise
            found.unreadable.append(name)
    return found
