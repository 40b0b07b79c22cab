"""Whether a file of a checkpoint can be read to its end, by its header and its size.

Only headers and directories are read, each up to a limit, so that a file of 100 GB takes as long as
one of a megabyte.  A check returns `None` for a whole file, else what is wrong with it in a few
words; it raises `Unknown` if the format does not show it.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Callable
from typing import IO, Any

MAX_HEADER = 100_000_000
"""Bytes of a header of safetensors, as its own library limits it."""
MAX_DIRECTORY = 16 << 20
"""Bytes of a zip's directory."""
MAX_ENTRIES = 4096
"""Entries of a zip, evenly spread, whose places are compared with its directory."""
MAX_JSON = 16 << 20

LOCAL, END = b"PK\x03\x04", b"PK\x05\x06"
BROKEN = zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, EOFError, struct.error
"""What `zipfile` raises for a zip that it cannot read."""
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of `torch.save` before it wrote zips."""
_PROBE = 64


class Unknown(Exception):
    """The format does not show whether a file is whole, or the limits were reached."""


def safetensors(file: IO[bytes], size: int) -> str | None:
    """A file of safetensors: a length, a header of JSON, and tensors up to the file's end.

    https://huggingface.co/docs/safetensors
    """
    tensors, start = safetensors_header(file, size)
    if isinstance(tensors, str):
        return tensors
    try:
        ends = [int(one["data_offsets"][1]) for one in tensors.values()]
    except (KeyError, IndexError, TypeError, ValueError):
        return "its header does not say where its tensors are"
    return _length(size, start + max(ends, default=0))


def safetensors_header(file: IO[bytes], size: int) -> tuple[dict[str, Any] | str, int]:
    """The tensors of a file by name, and where their data begins; or what is wrong."""
    if size < 8:
        return "it is cut short within its header", 0
    (length,) = struct.unpack("<Q", _at(file, 0, 8))
    if length > MAX_HEADER or length < 2:
        return "it does not begin with the length of a header", 0
    if 8 + length > size:
        return "it is cut short within its header", 0
    try:
        header = json.loads(_at(file, 8, length))
    except (ValueError, RecursionError):
        return "its header cannot be read", 0
    if not isinstance(header, dict):
        return "its header cannot be read", 0
    header.pop("__metadata__", None)
    return header, 8 + length


def torch_file(file: IO[bytes], size: int) -> str | None:
    """A file of `torch.save` or `pickle`: a zip, else a format whose end shows little."""
    head = _at(file, 0, min(size, _PROBE))
    if head.startswith(LOCAL):
        return torch_zip(file, size)
    if size >= _PROBE and not any(head):
        return "it begins with zeros: it was never written to the disk"
    if head.startswith(_LEGACY):
        raise Unknown("the old format of torch.save")
    if head.startswith(b"\x80"):
        return None if _at(file, size - 1, 1) == b"." else "it is cut short: no pickle ends so"
    if LOCAL.startswith(head):
        return "it is cut short within its header"
    raise Unknown("an unknown format")


def torch_zip(file: IO[bytes], size: int) -> str | None:
    """A zip of `torch.save`: it ends with a directory, and the entries are where that says."""
    archive = zip_archive(file)
    if isinstance(archive, str):
        return archive
    entries = archive.infolist()
    for entry in entries[:: 1 + len(entries) // MAX_ENTRIES]:
        at, latest = entry.header_offset, archive.start_dir - entry.compress_size
        if not 0 <= at <= latest or _at(file, at, 4) != LOCAL:
            return f"{entry.filename[:100]} in it is not where its directory says"
    if not any(entry.filename.endswith("data.pkl") for entry in entries):
        raise Unknown("a zip that torch.save has not written")
    return None


def zip_archive(file: IO[bytes]) -> zipfile.ZipFile | str:
    """A zip whose directory has been read; or what is wrong.  Raises `Unknown`."""
    bounded: Any = _Bounded(file)
    try:
        return zipfile.ZipFile(bounded)
    except BROKEN:
        return "it is cut short, or the directory at its end cannot be read"


class _Bounded:
    """A file whose directory is not read if it is too long, or before the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY:
            raise Unknown("its directory is too long")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and offset < 0:
            raise zipfile.BadZipFile("its directory begins before it")
        return self._file.seek(offset, whence)


def json_file(file: IO[bytes], size: int) -> str | None:
    """A file of JSON."""
    if size > MAX_JSON:
        raise Unknown("too long to be read")
    try:
        json.loads(_at(file, 0, size))
    except RecursionError:
        raise Unknown("too deep to be read") from None
    except ValueError:
        return "it is no JSON: it is cut short or was never finished"
    return None


def _length(size: int, told: int) -> str | None:
    if size < told:
        return f"it is cut short: {size:,} of {told:,} bytes"
    return f"it has {size:,} bytes, and its header says {told:,}" if size > told else None


def _at(file: IO[bytes], at: int, length: int) -> bytes:
    """`length` bytes from `at`; fewer only at the end of the file.  Raises `OSError`."""
    parts = []
    while length > 0 and (part := os.pread(file.fileno(), length, at)):
        parts.append(part)
        at, length = at + len(part), length - len(part)
    return b"".join(parts)


CHECKS: dict[str, Callable[[IO[bytes], int], str | None]] = {
    ".safetensors": safetensors,
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt", ".pkl"), torch_file),
    ".json": json_file,
}
"""The checks by the end of a file's name."""
