"""Pages in gzip that are joined from parts."""

from __future__ import annotations

import gzip
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewatch.core.deflate import deflated, gzipped


@given(st.lists(st.binary(max_size=2000), max_size=6))
def test_joined_parts_unpack_to_the_whole(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert gzip.decompress(gzipped(map(deflated, parts), whole)) == whole


def test_the_file_is_of_one_member_that_gzip_finds_intact() -> None:
    if shutil.which("gzip") is None:
        pytest.skip("gzip is not installed")
    parts = [b"# HELP a text\n" * 500, b"", b"b 1\n"]
    page = gzipped(map(deflated, parts), b"".join(parts))
    unpacked = subprocess.run(["gzip", "-dc"], input=page, capture_output=True, check=True)
    assert unpacked.stdout == b"".join(parts)
    assert unpacked.stderr == b""
    assert len(page) < len(unpacked.stdout) / 20
