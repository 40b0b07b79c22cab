"""The record directory: real ranks come and go, and other users put files there."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.errors import NoData, SourceError
from stagewatch.record import (
    H_CLOSED,
    H_CREATED_WALL,
    H_PID,
    H_RANK,
    H_START_TICKS,
    LANES_AT,
    RECORD_SIZE,
    WORD,
)
from stagewatch.sources.procfs import Procfs
from stagewatch.sources.rank_record import Life
from stagewatch.sources.record_directory import (
    GRACE_SECONDS,
    HALTED_SECONDS,
    LINGER_SECONDS,
    MAX_RECORDS_PER_USER,
    RECHECK_SECONDS,
    RecordDirectory,
)
from tests.records import SECOND_USER, patched, place, real_record
from tests.running import Python, Script
from tests.waiting import wait_for

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as a second user needs root")

RANK = """
import os, sys, time
import stagewatch
if len(sys.argv) > 2:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
stagewatch.init(job_id=540, rank=int(sys.argv[1]))
stagewatch.heartbeat(1)
print("ready", flush=True)
time.sleep(600)
"""


class Time:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like the one a site uses: any user may add files, none another's remove."""
    with tempfile.TemporaryDirectory(prefix="stagewatch-test-") as name:
        directory = Path(name)
        directory.chmod(0o1777)
        yield directory


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def reader(shared: Path, clock: Time) -> Iterator[RecordDirectory]:
    with closing(RecordDirectory(shared, Procfs(), clock=clock)) as reader:
        yield reader


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A record of a process that ended long ago."""
    real = real_record(tmp_path_factory.mktemp("ranks"))
    return patched(real, {H_START_TICKS: 1})


@pytest.fixture
def start_rank(python: Python, shared: Path) -> Callable[..., Script]:
    def start(rank: int, *user: int, prefix: tuple[str, ...] = ()) -> Script:
        script = python(RANK, rank, *user, prefix=prefix, STAGEWATCH_DIR=str(shared))
        script.said("ready")
        return script

    return start


Start = Callable[..., Script]


def test_a_missing_directory_is_no_data_and_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoData, match="does not exist"):
        RecordDirectory(tmp_path / "absent", Procfs()).read()
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="Not a directory"):
        RecordDirectory(tmp_path / "file", Procfs()).read()


def test_ranks_are_alive_then_gone_then_forgotten(
    reader: RecordDirectory, clock: Time, shared: Path, start_rank: Start
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


def test_a_closed_record_lingers_so_that_nobody_misses_its_end(
    reader: RecordDirectory, clock: Time, python: Python, shared: Path
) -> None:
    script = python(
        """
        import sys, time
        from pathlib import Path
        import stagewatch
        stagewatch.init()
        stagewatch.heartbeat(1)
        print("ready", flush=True)
        while not Path(sys.argv[1]).exists():
            time.sleep(0.01)
        stagewatch.heartbeat(2)
        """,
        shared / "go",
        STAGEWATCH_DIR=str(shared),
    )
    script.said("ready")
    (record,) = reader.read()
    assert record.lanes[0].step == 1
    (shared / "go").touch()
    script.finish()
    assert list(shared.glob("*.rank")) == []
    for _ in range(2):
        (record,) = reader.read()
        assert (record.life, record.lanes[0].step) == (Life.CLOSED, 2)
        clock.now += LINGER_SECONDS / 2
    assert reader.read() == []


def test_a_reused_pid_is_not_taken_for_the_rank(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    stat = Procfs().stat(os.getpid())
    assert stat is not None
    place(shared, patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks}), 1)
    place(shared, patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks - 1}), 2)
    lives = {record.name[0]: record.life for record in reader.read()}
    assert lives == {"1": Life.ALIVE, "2": Life.GONE}


def test_a_record_from_before_a_reboot_is_gone(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    stat = Procfs().stat(os.getpid())
    assert stat is not None
    here = patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks})
    boot = Procfs().boot_id().encode()
    place(shared, here.replace(boot, b"0" * len(boot)))
    (record,) = reader.read()
    assert record.life is Life.GONE


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("symlink", "symlink"),
        ("dangling symlink", "symlink"),
        ("hard link", "not_a_file"),
        ("fifo", "not_a_file"),
        ("socket", "unreadable"),
        ("directory", "not_a_file"),
        ("empty", "size"),
        ("short", "size"),
        ("long", "size"),
        ("huge", "size"),
        ("noise", "corrupt"),
        ("zeros", "corrupt"),
        ("name", "name"),
        ("not ASCII digits", "name"),
    ],
)
def test_hostile_files_are_counted_and_harm_nothing(
    kind: str, reason: str, reader: RecordDirectory, shared: Path, raw: bytes, tmp_path: Path
) -> None:
    place(shared, raw, 1)
    hostile = shared / "2-00000002.rank"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(raw)
    if kind == "symlink":
        hostile.symlink_to(elsewhere)
    elif kind == "dangling symlink":
        hostile.symlink_to("/nonexistent")
    elif kind == "hard link":
        (shared / "passwd").write_bytes(raw)
        hostile.hardlink_to(shared / "passwd")
        (shared / "passwd").rename(tmp_path / "passwd")
    elif kind == "fifo":
        os.mkfifo(hostile)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(hostile))
    elif kind == "directory":
        hostile.mkdir()
    elif kind == "huge":
        with hostile.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "name":
        (shared / "core.1234").write_bytes(raw)
    elif kind == "not ASCII digits":
        (shared / "٣-00000002.rank").write_bytes(raw)
    else:
        sizes = {"empty": b"", "short": raw[:-1], "long": raw + b"x"}
        hostile.write_bytes(sizes.get(kind, bytes([kind == "noise"]) * RECORD_SIZE))
    for _ in range(2):
        assert [record.name for record in reader.read()] == ["1-00000001.rank"]
        assert reader.skipped == {reason: 1}


def test_a_file_that_becomes_a_record_is_found_later(
    reader: RecordDirectory, clock: Time, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    file.write_bytes(b"")
    assert reader.read() == []
    file.write_bytes(raw)
    clock.now += RECHECK_SECONDS
    assert len(reader.read()) == 1
    assert not reader.skipped


def test_a_record_that_turns_to_noise_is_forgotten_for_good(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    assert len(reader.read()) == 1
    with file.open("r+b") as handle:
        handle.write(b"\xff" * 100)
    assert reader.read() == []
    assert reader.read() == []
    assert not file.exists()


def test_a_record_cut_short_while_it_is_open_is_no_crash(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    assert len(reader.read()) == 1
    os.truncate(file, 100)
    assert reader.read() == []


@as_root
def test_another_users_rank_is_read(reader: RecordDirectory, start_rank: Start) -> None:
    script = start_rank(2, SECOND_USER)
    (record,) = reader.read()
    assert (record.life, record.pid, record.uid) == (Life.ALIVE, script.pid, SECOND_USER)


@as_root
def test_a_record_that_claims_another_users_process_is_not_believed(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    stat = Procfs().stat(os.getpid())
    assert stat is not None
    claim = patched(raw, {H_PID: os.getpid(), H_START_TICKS: stat.start_ticks})
    place(shared, claim, 1, owner=SECOND_USER)
    place(shared, patched(claim, {H_RANK: 5}), 2)
    assert [record.rank for record in reader.read()] == [5]
    assert reader.skipped == {"wrong_owner": 1}


@as_root
def test_another_user_cannot_join_a_role_of_somebodys_job(
    reader: RecordDirectory, shared: Path, raw: bytes, start_rank: Start
) -> None:
    """Nor hide a rank by a newer record of the same name."""
    start_rank(3)
    newer = {H_CREATED_WALL: 2**62}
    place(shared, patched(raw, newer), 1, owner=SECOND_USER)
    place(shared, patched(raw, {H_RANK: 7, **newer}), 2, owner=SECOND_USER)
    (record,) = reader.read()
    assert (record.rank, record.uid, record.life) == (3, os.geteuid(), Life.ALIVE)
    assert reader.skipped == {"intruder": 2}


@as_root
def test_a_lock_taken_for_reading_neither_hides_nor_revives_a_rank(
    reader: RecordDirectory, shared: Path, raw: bytes, python: Python
) -> None:
    """Whoever may read a file may lock it for reading, which keeps writers' locks away."""
    place(shared, raw)
    script = python(
        """
        import fcntl, os, sys, time
        os.setuid(int(sys.argv[2]))
        file = open(sys.argv[1], "rb")
        fcntl.lockf(file, fcntl.LOCK_SH)
        print("ready", flush=True)
        time.sleep(600)
        """,
        shared / "1-00000001.rank",
        SECOND_USER,
    )
    script.said("ready")
    (record,) = reader.read()
    assert record.life is Life.GONE
    assert not reader.skipped


@as_root
def test_nobody_else_can_open_a_record_before_its_lock_is_held(
    python: Python, shared: Path
) -> None:
    script = python(
        """
        import os, sys
        import stagewatch.client._recorder as recorder
        import stagewatch

        def lockf(fd, kind):
            print("mode before the lock", oct(os.fstat(fd).st_mode & 0o777))
            return original(fd, kind)

        original, recorder.fcntl.lockf = recorder.fcntl.lockf, lockf
        os.umask(0o027)
        stagewatch.init()
        (name,) = os.listdir(sys.argv[1])
        print("mode of the record", oct(os.stat(f"{sys.argv[1]}/{name}").st_mode & 0o777))
        """,
        shared,
        STAGEWATCH_DIR=str(shared),
    )
    assert script.finish().splitlines() == [
        "mode before the lock 0o600",
        "mode of the record 0o644",
    ]


@as_root
def test_ten_thousand_files_of_one_user_do_not_crowd_out_anothers_rank(
    reader: RecordDirectory,
    clock: Time,
    shared: Path,
    start_rank: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(10_000):
        file = shared / f"{number + 1}-{number:08x}.rank"
        with file.open("wb") as handle:
            handle.truncate(RECORD_SIZE)
        os.chown(file, SECOND_USER, SECOND_USER)
    script = start_rank(6)
    (record,) = reader.read()
    assert record.pid == script.pid
    assert reader.skipped == {
        "corrupt": MAX_RECORDS_PER_USER,
        "too_many": 10_000 - MAX_RECORDS_PER_USER,
    }
    opened: list[object] = []
    real_open = reader._opened
    monkeypatch.setattr(reader, "_opened", lambda name: opened.append(name) or real_open(name))
    assert len(reader.read()) == 1
    assert opened == []  # what was turned away is not opened again in every look
    clock.now += RECHECK_SECONDS
    reader.read()
    assert len(opened) == 10_000 - MAX_RECORDS_PER_USER


@as_root
def test_an_unprivileged_agent_shows_an_ended_rank_for_its_time_and_never_again(
    shared: Path, raw: bytes, python: Python
) -> None:
    """It cannot remove another user's file, so the file stays and must not come back."""
    place(shared, raw)
    output = python(
        """
        import os, sys
        from pathlib import Path
        from stagewatch.sources.procfs import Procfs
        from stagewatch.sources.record_directory import RecordDirectory

        os.setuid(int(sys.argv[2]))
        now = [0.0]
        reader = RecordDirectory(Path(sys.argv[1]), Procfs(), clock=lambda: now[0])
        for seconds in (0, 599, 600, 601, 1300, 2000):
            now[0] = seconds
            print(seconds, len(reader.read()), dict(reader.skipped))
        """,
        shared,
        SECOND_USER,
    ).finish()
    assert output.splitlines() == [
        "0 1 {}",
        "599 1 {}",
        "600 0 {'not_removable': 1}",
        "601 0 {'not_removable': 1}",
        "1300 0 {'not_removable': 1}",
        "2000 0 {'not_removable': 1}",
    ]


def test_a_closed_record_whose_file_stayed_is_removed(
    reader: RecordDirectory, clock: Time, shared: Path, raw: bytes
) -> None:
    file = place(shared, patched(raw, {H_CLOSED: 1}))
    (record,) = reader.read()
    assert record.life is Life.CLOSED
    clock.now += LINGER_SECONDS
    assert reader.read() == []
    assert not file.exists()


def test_a_writer_that_died_in_the_middle_of_a_store_is_read_in_the_end(
    reader: RecordDirectory, clock: Time, shared: Path, raw: bytes
) -> None:
    file = place(shared, raw)
    (good,) = reader.read()
    file.write_bytes(patched(raw, {LANES_AT // WORD: 10_001, LANES_AT // WORD + 4: 77}))
    assert reader.read() == [good]
    clock.now += HALTED_SECONDS
    (record,) = reader.read()
    assert record.lanes[0].step == 77


def test_a_record_first_met_in_the_middle_of_a_store_waits(
    reader: RecordDirectory, clock: Time, shared: Path, raw: bytes
) -> None:
    place(shared, patched(raw, {LANES_AT // WORD: 10_001}))
    assert reader.read() == []
    assert reader.skipped == {"torn": 1}
    clock.now += HALTED_SECONDS
    assert len(reader.read()) == 1


@as_root
def test_a_rank_in_another_pid_namespace_has_the_pid_that_the_node_gives_it(
    reader: RecordDirectory, start_rank: Start
) -> None:
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    script = start_rank(1, prefix=unshare)
    (record,) = reader.read()
    stat = Procfs().stat(record.pid)
    assert record.life is Life.ALIVE
    assert stat is not None
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
        from stagewatch.sources.procfs import Procfs
        from stagewatch.sources.record_directory import RecordDirectory
        (record,) = RecordDirectory(Path(sys.argv[1]), Procfs()).read()
        print(record.life.value, record.pid)
        """,
        shared,
        prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    ).finish()
    assert output == "alive 0\n"
