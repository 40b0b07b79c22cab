"""Real contention for storage, and a rank that waits for a dead mount."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagewatch.host.mounts import mount_of, read_mounts
from stagewatch.ranks import io as rank_io
from stagewatch.ranks.io import RankIoCollector
from stagewatch.storage import io
from stagewatch.storage.io import IoCollector, read_pressure
from tests.ranks.fakes import FakeRanks, family_io, program
from tests.waiting import wait_for

PROC, SYS = Path("/proc"), Path("/sys")
MIB = 1 << 20

WRITER = """
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
content = os.urandom(1 << 20)
print("begins")
while True:
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
"""
READER = """
import sys, threading
threading.Thread(target=open, args=(sys.argv[1],), daemon=True).start()
sys.stdin.readline()
"""


def test_a_competing_writer_shows_as_pressure_and_not_as_the_ranks_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not read_pressure(PROC):
        pytest.skip("needs a kernel with pressure stall information")
    mount = mount_of(tmp_path, read_mounts(Path("/proc/self/mountinfo")))
    device = "" if mount is None else Path(mount.source).name
    if not (SYS / "block" / device).exists() or not device:
        pytest.skip(f"needs {tmp_path} on a whole block device, it is on {mount}")
    ranks = FakeRanks()
    monkeypatch.setattr(io, "EXCLUDED_DISKS", re.compile("none"))
    node = IoCollector(PROC, SYS)
    by_rank = RankIoCollector(family_io(ranks))
    victim = program(WRITER, str(tmp_path / "victim"), str(MIB))
    rival = program(WRITER, str(tmp_path / "rival"), str(256 * MIB))
    with victim as rank, rival as writer:
        ranks.add(rank.pid, 0)
        rank.hear()
        writer.hear()
        first, first_rank = node.collect(), by_rank.collect()

        def grown() -> bool:
            now = node.collect()

            def rise(metric: io.Metric, *labels: str) -> float:
                return (now.value(metric, *labels) or 0) - (first.value(metric, *labels) or 0)

            return (
                rise(io.PRESSURE, "io", "some") > 0.2
                and rise(io.DISK_BUSY, device) > 0.2
                and rise(io.DISK_BYTES, device, "write") > 512 * MIB
            )

        wait_for(grown, "pressure, a busy disk and bytes written")
        labels = ("7", "train", "0", "write", "storage")
        last_rank = by_rank.collect()
        written = (last_rank.value(rank_io.BYTES, *labels) or 0) - (
            first_rank.value(rank_io.BYTES, *labels) or 0
        )
        rival_bytes = 512 * MIB
        assert 0 < written < rival_bytes
