"""A page in gzip, made of parts that are compressed only once (RFC 1951, RFC 1952).

Blocks of deflate that end at a byte may follow one another, whoever made them.  So what several
scrapers read is compressed once, and a scrape only joins.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"
"""No name, no time, the fastest compression, no system."""
_END = b"\x03\0"
"""An empty last block."""


def deflated(part: bytes) -> bytes:
    """The blocks of a part."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)


def gzipped(parts: Iterable[bytes], whole: bytes) -> bytes:
    """The file of gzip with these blocks, which together are the `whole`."""
    check = struct.pack("<II", zlib.crc32(whole), len(whole) & 0xFFFFFFFF)
    return b"".join([_HEADER, *parts, _END, check])
