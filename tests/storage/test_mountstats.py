"""The mountstats parser, over every kind of mount and over garbage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagewatch.storage.mountstats import NfsMount, parse_mountstats

FIXTURES = Path(__file__).parent.parent / "fixtures" / "nfs"
TEXT = (FIXTURES / "mountstats").read_text()
RDMA = (FIXTURES / "mountstats-rdma").read_text()


@pytest.fixture(scope="module")
def mounts() -> dict[str, NfsMount]:
    return {mount.mount: mount for mount in parse_mountstats(TEXT + RDMA)}


@pytest.mark.parametrize(
    ("mount", "server", "version", "protocol"),
    [
        ("/home", "filer1", "3", "tcp"),
        ("/data", "fd00:1::21", "4.1", "tcp6"),
        ("/checkpoints", "nas42", "4.2", "tcp"),
        ("/pool42", "fast-ib", "4.2", "rdma"),
    ],
)
def test_every_version_and_transport_is_understood(
    mounts: dict[str, NfsMount], mount: str, server: str, version: str, protocol: str
) -> None:
    found = mounts[mount]
    assert (found.server, found.version, found.protocol) == (server, version, protocol)
    assert found.sent
    assert found.operations["READ"].operations > 0


def test_escaped_names_are_shown_as_they_are(mounts: dict[str, NfsMount]) -> None:
    assert mounts["/mnt/with space\\and\ttab"].export == "nas42:/scratch space"


def test_the_upper_of_two_mounts_on_one_point_counts() -> None:
    text = (
        "device a:/x mounted on /m with fstype nfs statvers=1.1\n\topts:\tvers=3\n"
        "device b:/y mounted on /m with fstype nfs statvers=1.1\n\topts:\tvers=4.2\n"
    )
    [mount] = parse_mountstats(text)
    assert (mount.server, mount.version) == ("b", "4.2")


@given(st.integers(0, len(TEXT)))
@settings(max_examples=20)
def test_a_partial_read_keeps_every_mount_before_the_cut(cut: int) -> None:
    whole = parse_mountstats(TEXT)
    part = parse_mountstats(TEXT[:cut])
    assert len(part) <= len(whole)
    for got, expected in zip(part[:-1], whole, strict=False):
        assert got == expected
