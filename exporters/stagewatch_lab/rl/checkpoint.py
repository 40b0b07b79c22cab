"""Checkpoints: one file per step, written in place, as hasty frameworks do."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from pathlib import Path

_HEADER = struct.Struct("<8sQ")
_MAGIC = b"RLCKPT01"
_NAME = re.compile(r"step_(\d+)\.pt")
CHUNK = 1 << 20
KEPT = 2


def save(directory: Path, step: int, content: bytes, seconds: float) -> Path:
    """Write and sync a checkpoint, paced to take `seconds`; the two newest are kept.

    Raises `OSError`, with a part of the file written.
    """
    file = directory / f"step_{step:06d}.pt"
    chunks = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)]
    with file.open("wb", buffering=0) as out:
        _write(out.fileno(), _HEADER.pack(_MAGIC, len(content)))
        for chunk in chunks:
            _write(out.fileno(), chunk)
            time.sleep(seconds / len(chunks))
        os.fsync(out.fileno())
    for old in sorted(directory.glob("step_*.pt"))[:-KEPT]:
        with contextlib.suppress(FileNotFoundError):
            old.unlink()
    return file


def read_part(directory: Path, offset: int, size: int) -> bytes | None:
    """A part of the newest checkpoint; `None` if there is none.

    Raises `EOFError` if it is cut short.
    """
    files = [file for file in directory.iterdir() if _NAME.fullmatch(file.name)]
    if not files:
        return None
    with max(files).open("rb") as file:
        header = file.read(_HEADER.size)
        whole = _HEADER.unpack(header)[1] if len(header) == _HEADER.size else 0
        file.seek(offset, os.SEEK_CUR)
        content = file.read(size)
        if not whole or len(content) < min(size, whole - offset):
            at = file.seek(0, os.SEEK_END)
            raise EOFError(f"Checkpoint corrupted: EOFError at position {at}")
    return content


def _write(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
