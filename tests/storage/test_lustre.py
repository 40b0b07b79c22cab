"""Lustre's client counters, of both generations."""

from __future__ import annotations

from pathlib import Path

from stagewatch.storage.lustre import parse_stats, read_lustre

OLD = """snapshot_time             1523008010.817348638 secs.nsecs
read_bytes                25673 samples [bytes] 1 3366225 145121869
write_bytes               13641 samples [bytes] 1 3366225 468230469
open                      120 samples [regs]
getattr                   77 samples [regs]
"""
NEW = """snapshot_time             1700000000.000000001 secs.nsecs
start_time                1699990000.000000001 secs.nsecs
elapsed_time              10000.000000000 secs.nsecs
read_bytes                200 samples [bytes] 4096 1048576 209715200 9999999
write_bytes               100 samples [bytes] 4096 1048576 104857600 9999999
read                      200 samples [usecs] 3 91811 2500000 8999
write                     100 samples [usecs] 5 1000 750000 8999
open                      12 samples [usecs] 50 900 6000 8999
"""


def test_bytes_and_calls_of_an_old_client() -> None:
    client = parse_stats("scratch", OLD)
    assert client.bytes == {"read": 145121869, "write": 468230469}
    assert client.operations == {"read": 25673, "write": 13641, "open": 120, "getattr": 77}
    assert client.seconds == {}


def test_a_new_client_times_its_calls() -> None:
    client = parse_stats("scratch", NEW)
    assert client.operations == {"read": 200, "write": 100, "open": 12}
    assert client.seconds == {"read": 2.5, "write": 0.75, "open": 0.006}


def test_file_systems_are_found_by_name(tmp_path: Path) -> None:
    directory = tmp_path / "sys/kernel/debug/lustre/llite"
    for name, text in (("scratch-ffff8a0c4b5e1000", NEW), ("home", OLD)):
        (directory / name).mkdir(parents=True)
        (directory / name / "stats").write_text(text)
    (directory / "unreadable-ffff8a0c4b5e2000").mkdir()
    found = {client.name: client for client in read_lustre(tmp_path / "proc", tmp_path / "sys")}
    assert found.keys() == {"scratch", "home"}
    assert found["scratch"].bytes["read"] == 209715200


def test_the_place_of_old_versions_is_read_too(tmp_path: Path) -> None:
    directory = tmp_path / "proc/fs/lustre/llite/scratch-ffff8a0c4b5e1000"
    directory.mkdir(parents=True)
    (directory / "stats").write_text(OLD)
    [client] = read_lustre(tmp_path / "proc", tmp_path / "sys")
    assert client.name == "scratch"
