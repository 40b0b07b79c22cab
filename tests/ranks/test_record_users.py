"""What other users of a node may do to the record directory, and what they may not."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks import record_directory
from stagewatch.ranks.record_directory import MAX_RECORDS_PER_USER, RECHECK_SECONDS, RecordDirectory
from stagewatch.ranks.records import Life
from stagewatch.record import FILE_SIZE, H_CREATED_WALL, H_PID, H_RANK, H_START_TICKS
from tests.fake_clock import Clock
from tests.ranks.record_scene import Start, as_root
from tests.records import SECOND_USER, patched, place
from tests.running import Python


@as_root
def test_a_record_that_claims_another_users_process_is_not_believed(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    stat = Procfs().stat(os.getpid())
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
    python.ready(
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
    clock: Clock,
    shared: Path,
    start_rank: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(10_000):
        file = shared / f"{number + 1}-{number:08x}.rank"
        with file.open("wb") as handle:
            handle.truncate(FILE_SIZE)
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
    assert len(opened) == 1  # which tells that its user still has no room


class SlowClock(Clock):
    """Every question takes a millisecond."""

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@as_root
def test_a_flood_of_files_delays_no_look_at_ranks_that_are_open(
    shared: Path, start_rank: Start
) -> None:
    first = start_rank(3)
    clock = SlowClock()
    with closing(RecordDirectory(shared, Procfs(), clock=clock)) as reader:
        assert len(reader.read()) == 1
        for number in range(1000):
            (shared / f"0{number}-{number:08x}.rank").touch()  # before any pid
        late = start_rank(6)
        found = reader.read()
        assert {record.pid for record in found} == {first.pid, late.pid}
        assert reader.skipped["not_yet"]
        while reader.skipped["not_yet"]:
            reader.read()
        assert reader.skipped == {"size": 1000}


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
        from stagewatch.host.procfs import Procfs
        from stagewatch.ranks.record_directory import RecordDirectory

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


class SlurmProcfs(Procfs):
    """The real processes, some of which Slurm has put into a job; see cgroup_v2.html of Slurm."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, str] = {}

    def cgroups(self, pid: int) -> list[str]:
        """The control group of a task, else that of a login."""
        job = self.jobs.get(pid)
        scope = "/system.slice/slurmstepd.scope"
        return [f"{scope}/job_{job}/step_0/user/task_0" if job else "/user.slice"]


@as_root
def test_a_rank_of_slurms_cannot_state_another_job(
    shared: Path, clock: Clock, start_rank: Start
) -> None:
    """On whatever node: nothing else there need be known of the job."""
    proc = SlurmProcfs()
    other = start_rank(3, SECOND_USER)
    proc.jobs[other.pid] = "900"
    with closing(RecordDirectory(shared, proc, clock=clock)) as reader:
        assert reader.read() == []
        assert reader.skipped == {"other_job": 1}


@as_root
@pytest.mark.parametrize("known", [True, False])
def test_who_was_first_takes_no_job_from_whom_slurm_runs_it_for(
    known: bool, shared: Path, clock: Clock, start_rank: Start
) -> None:
    """Nor hides it where nobody can tell whose it is: the other's ranks are shown beside it."""
    proc = SlurmProcfs()
    with closing(RecordDirectory(shared, proc, clock=clock)) as reader:
        start_rank(3, SECOND_USER)
        reader.read()
        owner = start_rank(3)
        if known:
            proc.jobs[owner.pid] = "540"
        mine, others = "540", f"540~{SECOND_USER}"
        if not known:
            mine, others = f"540~{os.geteuid()}", "540"
        assert {record.uid: record.job_id for record in reader.read()} == {
            os.geteuid(): mine,
            SECOND_USER: others,
        }
        assert reader.skipped == {"intruder": 1}


def test_few_descriptors_leave_most_to_the_agent(python: Python, shared: Path, raw: bytes) -> None:
    """What RLIMIT_NOFILE leaves, see getrlimit(2), is not given to whoever writes records."""
    for number in range(1, 200):
        place(shared, patched(raw, {H_RANK: number}), number)
    output = python(
        """
        import os, resource, sys
        from pathlib import Path
        from stagewatch.host.procfs import Procfs
        from stagewatch.ranks.record_directory import RecordDirectory

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        reader = RecordDirectory(Path(sys.argv[1]), Procfs(), clock=lambda: 0.0)
        print(len(reader.read()), dict(reader.skipped), len(os.listdir("/proc/self/fd")) < 32)
        """,
        shared,
    ).finish()
    assert output.split("\n")[0] == "16 {'too_many': 183} True"


def test_each_look_opens_some_files_however_busy_the_machine_is(shared: Path, raw: bytes) -> None:
    for number in range(1, 101):
        place(shared, patched(raw, {H_RANK: number}), number)
    seconds = itertools.count()
    with closing(RecordDirectory(shared, Procfs(), clock=lambda: float(next(seconds)))) as reader:
        assert [len(reader.read()) for _ in range(2)] == [64, 100]


@as_root
def test_a_user_whose_files_crowd_the_directory_is_told(
    reader: RecordDirectory, shared: Path, raw: bytes
) -> None:
    place(shared, raw, 1)
    assert reader.over_quota() == {}
    for number in range(4000):
        file = shared / f"any-{number}"
        file.write_bytes(b"x")
        os.chown(file, SECOND_USER, SECOND_USER)
    assert reader.over_quota().keys() == {SECOND_USER}
    assert reader.over_quota()[SECOND_USER] > MAX_RECORDS_PER_USER * FILE_SIZE


@as_root
def test_a_users_dead_give_way_to_his_living(
    clock: Clock, shared: Path, raw: bytes, start_rank: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_directory, "MAX_RECORDS_PER_USER", 4)
    for number in range(1, 5):
        place(shared, patched(raw, {H_RANK: number}), number)
        clock.now += 1
    with closing(RecordDirectory(shared, Procfs(), clock=clock)) as reader:
        assert {record.life for record in reader.read()} == {Life.GONE}
        script = start_rank(6)
        assert script.pid in {record.pid for record in reader.read()}
        assert len(reader.read()) == 4
