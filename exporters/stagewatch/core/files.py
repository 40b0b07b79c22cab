"""Writes files atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from stagewatch.core.descriptors import closing


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, and never a part.

    A `durable` file also survives a power failure: its content and its name are synced.  The draft
    is a new file in the same directory (`O_EXCL`), and is removed after a failure.  Raises
    `OSError`; the directory must exist.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".draft")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        raise
    if durable:
        with closing(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)) as directory:
            os.fsync(directory)
