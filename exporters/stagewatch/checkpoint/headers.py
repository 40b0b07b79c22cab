"""Whether a file of a checkpoint can be read to its end, by its header and its size.

No more is read than headers and directories, each up to a limit, so that a file of 100 GB takes as
long as one of a megabyte.  Each check returns `None` for a file that is whole, else what is wrong
with it in a few words; it raises `Unknown` where the format does not tell.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import IO, Any

MAX_HEADER = 100_000_000
"""Bytes of a header of safetensors, as its own library limits it."""
MAX_DIRECTORY = 64 << 20
"""Bytes of a zip's directory."""
MAX_ENTRIES = 4096
"""Of a zip, evenly spread: those of which it is seen that they are where the directory says."""
MAX_JSON = 16 << 20

LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END64, LOCATOR64 = b"PK\x06\x06", b"PK\x06\x07"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How `torch.save` began before it wrote zips."""
_PROBE = 64


class Unknown(Exception):
    """Its format does not tell whether it is whole, or the check has its limits."""


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
    """What `torch.save` or `pickle` has written: a zip, else something whose end says little."""
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
    """A zip of `torch.save`: it ends with a directory, and each entry lies where that says."""
    found = zip_entries(file, size)
    if isinstance(found, str):
        return found
    entries, directory = found
    for name, (at, length) in [*entries.items()][:: 1 + len(entries) // MAX_ENTRIES]:
        if at + length > directory or _at(file, at, 4) != LOCAL:
            return f"{name[:100]} in it is not where its directory says"
    if not any(name.endswith("data.pkl") for name in entries):
        raise Unknown("a zip that torch.save has not written")
    return None


def zip_entries(file: IO[bytes], size: int) -> tuple[dict[str, tuple[int, int]], int] | str:
    """Offset and length of the entries of a zip, and where its directory begins; or what is wrong.

    Torch writes no comment behind it, so the end is the end.  APPNOTE.TXT of PKWARE, 4.3.
    """
    short = "it is cut short: the directory at its end is missing"
    end = _at(file, size - 22, 22) if size >= 22 else b""
    if not end.startswith(END):
        return short
    count, length, start = struct.unpack_from("<HII", end, 10)
    before = _at(file, size - 42, 20) if size >= 42 else b""
    if before.startswith(LOCATOR64):
        (at,) = struct.unpack_from("<Q", before, 8)
        end64 = _at(file, at, 56) if at + 56 <= size else b""
        if not end64.startswith(END64):
            return short
        count, length, start = struct.unpack_from("<QQQ", end64, 32)
    if start + length > size:
        return short
    if length > MAX_DIRECTORY:
        raise Unknown("its directory is too long")
    return _entries(_at(file, start, length), count, start) or "its directory cannot be read"


def _entries(raw: bytes, count: int, start: int) -> tuple[dict[str, tuple[int, int]], int] | None:
    entries: dict[str, tuple[int, int]] = {}
    at = 0
    try:
        while at < len(raw):
            if raw[at : at + 4] != CENTRAL:
                return None
            packed, unpacked, name, extra, comment = struct.unpack_from("<IIHHH", raw, at + 20)
            (where,) = struct.unpack_from("<I", raw, at + 42)
            body = at + 46
            more = raw[body + name : body + name + extra]
            # Zip64's field holds, in this order, those of the three that do not fit into 32 bits.
            large = [value for value in (unpacked, packed, where) if value == 0xFFFFFFFF]
            if large and more[:2] == b"\x01\x00":
                wide = iter(struct.unpack_from(f"<{len(large)}Q", more, 4))
                _, packed, where = (
                    next(wide) if value == 0xFFFFFFFF else value
                    for value in (unpacked, packed, where)
                )
            entries[raw[body : body + name].decode("utf-8", "replace")] = where, packed
            at = body + name + extra + comment
    except struct.error:
        return None
    return (entries, start) if len(entries) == count else None


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
    return f"it has {size:,} bytes, and its header tells of {told:,}" if size > told else None


def _at(file: IO[bytes], at: int, length: int) -> bytes:
    """So many bytes from there, fewer only at the end of the file.  Raises `OSError`."""
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
"""What checks a file, by the end of its name."""
