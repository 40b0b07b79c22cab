"""The record directory: real ranks come, end, and are forgotten."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.core.errors import NoData, SourceError
from stagewatch.host.procfs import Procfs
from stagewatch.ranks import record_directory
from stagewatch.ranks.record_directory import GRACE_SECONDS, LINGER_SECONDS, RecordDirectory
from stagewatch.ranks.records import Life
from stagewatch.record import H_CLOSED, H_PID, H_START_TICKS
from tests.fake_clock import Clock
from tests.ranks.record_scene import Start, as_root
from tests.records import patched, place
from tests.running import Python
from tests.waiting import wait_for


def test_a_missing_directory_is_no_data_and_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="does not exist"):
        RecordDirectory(tmp_path / "absent", Procfs()).read()
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="Not a directory"):
        RecordDirectory(tmp_path / "file", Procfs()).read()


def test_ranks_are_alive_then_gone_then_forgotten(
    reader: RecordDirectory, clock: Clock, shared: Path, start_rank: Start
) -> None:
    script = start_rank(4)
    (record,) = reader.read()
    assert (record.life, record.pid, record.rank) == (Life.ALIVE, script.pid, 4)
    script.kill()
    (record,) = reader.read()
    assert record.life is Life.GONE
    clock.now += GRACE_SECONDS - 1
    assert len(reader.read()) == 1
    clock.now += 1
    assert reader.read() == []
    assert list(shared.iterdir()) == []


def test_bytes_that_stay_the_same_are_read_once(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw, 1)
    (first,), (second,) = reader.read(), reader.read()
    assert second.totals is first.totals
    with file.open("r+b") as record:
        record.write(patched(raw, {H_CLOSED: 1}))
    (third,) = reader.read()
    assert third.totals is not first.totals
    assert third.closed


def test_neither_a_reused_pid_nor_one_of_another_boot_is_taken_for_the_rank(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    stat = Procfs().stat(os.getpid())
    place(shared, patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks}), 1)
    place(shared, patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks - 1}), 2)
    here = patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks})
    boot = Procfs().boot_id().encode()
    place(shared, here.replace(boot, b"0" * len(boot)), 3)
    lives = {record.name[0]: record.life for record in reader.read()}
    assert lives == {"1": Life.ALIVE, "2": Life.GONE, "3": Life.GONE}


def test_a_closed_record_whose_file_stayed_is_removed(
    reader: RecordDirectory, clock: Clock, shared: Path, raw: bytes
) -> None:
    file = place(shared, patched(raw, {H_CLOSED: 1}))
    (record,) = reader.read()
    assert record.life is Life.CLOSED
    clock.now += LINGER_SECONDS
    assert reader.read() == []
    assert not file.exists()


@as_root
def test_a_rank_in_another_pid_namespace_has_the_pid_that_the_node_gives_it(
    reader: RecordDirectory, start_rank: Start
) -> None:
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    script = start_rank(1, prefix=unshare)
    (record,) = reader.read()
    stat = Procfs().stat(record.pid)
    assert record.life is Life.ALIVE
    assert stat.parent == script.pid
    status = Path(f"/proc/{record.pid}/status").read_text()
    assert f"NSpid:\t{record.pid}\t1\n" in status
    script.kill()
    wait_for(lambda: reader.read()[0].life is Life.GONE, "the rank is gone")


@as_root
def test_a_rank_that_an_agent_in_a_namespace_cannot_see_is_alive_without_a_pid(
    shared: Path, start_rank: Start, python: Python
) -> None:
    start_rank(1)
    output = python(
        """
        import sys
        from pathlib import Path
        from stagewatch.host.procfs import Procfs
        from stagewatch.ranks.record_directory import RecordDirectory
        (record,) = RecordDirectory(Path(sys.argv[1]), Procfs()).read()
        print(record.life.value, record.pid)
        """,
        shared,
        prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    ).finish()
    assert output == "alive 0\n"


def test_an_agent_that_starts_again_finds_all_that_a_record_holds(
    reader: RecordDirectory, shared: Path, start_rank: Start
) -> None:
    alive, gone = start_rank(0), start_rank(1)
    gone.kill()
    before = reader.read()
    reader.close()
    with closing(RecordDirectory(shared, Procfs())) as again:
        after = again.read()
    assert sorted(before, key=lambda record: record.rank) == sorted(
        after, key=lambda record: record.rank
    )
    assert {record.rank: record.life for record in after} == {0: Life.ALIVE, 1: Life.GONE}
    assert after[0].pid in (alive.pid, gone.pid)


def test_of_too_many_files_those_of_living_ranks_come_first(
    shared: Path, raw: bytes, start_rank: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the others are called, and wherever the directory lists them."""
    rank = start_rank(7)
    for number in range(200):
        (shared / f"0-{number:08x}.rank").write_bytes(raw[:64])
    monkeypatch.setattr(record_directory, "MAX_ENTRIES", 100)
    seconds = itertools.count()
    with closing(RecordDirectory(shared, Procfs(), clock=lambda: float(next(seconds)))) as reader:
        found = [record.pid for record in reader.read()]
        assert found == [rank.pid], reader.skipped
        assert reader.skipped["too_many"] == 1 and reader.skipped["not_yet"]
