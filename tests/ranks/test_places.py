"""Records in users' private directories: whose are read, and what nobody can do to others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from stagewatch import places as shared_places
from stagewatch.host.mounts import mount_of, read_mounts
from stagewatch.host.procfs import Procfs
from stagewatch.ranks import places, record_directory
from stagewatch.ranks.places import MAX_PLACES, readable_places
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import FILE_SIZE
from tests.fake_clock import Clock
from tests.running import Python

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")
SHM = Path("/dev/shm")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in memory that stands for /dev/shm."""
    mount = mount_of(SHM, read_mounts(Path("/proc/self/mountinfo")))
    if mount is None or mount.fstype != "tmpfs" or not os.access(SHM, os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    memory = SHM / f"stagewatch-test-{os.getpid()}"
    memory.mkdir(0o755)
    monkeypatch.setattr(shared_places, "MEMORY", memory)
    monkeypatch.setattr(places, "MEMORY", memory)
    monkeypatch.setattr(places, "RUNTIME", memory / "run-user")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield memory
    for path in sorted(memory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    memory.rmdir()


def place_of(memory: Path, user: int, mode: int = 0o700) -> Path:
    place = memory / f"stagewatch-{user}"
    place.mkdir()
    place.chmod(mode)
    with suppress(PermissionError):
        os.chown(place, user, user)
    return place


def begin(python: Python, place: Path, *user: int) -> int:
    """Start rank 0 of job 540 there; returns its pid."""
    script = python.ready(
        """
        import os, sys, time
        import stagewatch
        if sys.argv[2:]:
            os.setgid(int(sys.argv[2]))
            os.setuid(int(sys.argv[2]))
        stagewatch.init("train", job_id=f"job-{os.geteuid()}", rank=0, directory=sys.argv[1])
        print("ready", flush=True)
        time.sleep(600)
        """,
        place,
        *user,
    )
    return script.pid


@as_root
def test_root_reads_everyones(memory: Path, python: Python, clock: Clock) -> None:
    pids = {begin(python, place_of(memory, user), user) for user in (65533, 65534)}
    with closing(
        RecordDirectory(memory / "none", Procfs(), private=readable_places, clock=clock)
    ) as reader:
        assert {record.pid for record in reader.read()} == pids


@as_root
def test_another_user_reads_what_its_owner_has_opened(memory: Path, python: Python) -> None:
    place_of(memory, 65533)
    opened = place_of(memory, 65534, 0o755)
    script = python(
        """
        import os, sys
        from pathlib import Path
        from stagewatch.ranks import places
        places.MEMORY = Path(sys.argv[1])
        os.setgid(65532)
        os.setuid(65532)
        print(*places.readable_places())
        """,
        memory,
        XDG_RUNTIME_DIR="",
    )
    assert script.finish().split() == [str(opened)]


@as_root
def test_a_name_of_another_user_a_link_and_a_disk_are_no_places(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memory / "stagewatch-65533").mkdir()  # root's, under another's name
    (memory / "stagewatch-65534").symlink_to(tmp_path)
    assert readable_places() == []
    mount = mount_of(tmp_path, read_mounts(Path("/proc/self/mountinfo")))
    if mount is None or mount.fstype != "tmpfs":
        monkeypatch.setattr(places, "MEMORY", tmp_path)
        place_of(tmp_path, 65532)
        assert readable_places() == []


@as_root
def test_the_number_of_places_is_limited(memory: Path) -> None:
    for user in range(40_000, 40_000 + MAX_PLACES + 10):
        place_of(memory, user)
    assert len(readable_places()) == MAX_PLACES


@as_root
def test_an_owner_who_swaps_the_directory_for_a_link_leads_nobody_elsewhere(
    memory: Path, python: Python, clock: Clock
) -> None:
    place = place_of(memory, 65534)
    target = place_of(memory, 65533)
    begin(python, target, 65533)
    with closing(
        RecordDirectory(memory / "none", Procfs(), private=lambda: [place], clock=clock)
    ) as reader:
        with suppress(Exception):
            reader.read()
        place.rmdir()
        place.symlink_to(target)
        with pytest.raises(Exception, match="does not exist"):
            reader.read()


@as_root
def test_a_crowded_private_directory_keeps_nobody_elses_rank_out(
    memory: Path, python: Python, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(record_directory, "MAX_PRIVATE_ENTRIES", 20)
    crowded = place_of(memory, 65533)
    for number in range(100):
        file = crowded / f"{number + 1}-{number:08x}.rank"
        with file.open("wb") as handle:
            handle.truncate(FILE_SIZE)
        os.chown(file, 65533, 65533)
    pid = begin(python, place_of(memory, 65534), 65534)
    with closing(
        RecordDirectory(memory / "none", Procfs(), private=readable_places, clock=clock)
    ) as reader:
        assert [record.pid for record in reader.read()] == [pid]
        assert reader.skipped == {"corrupt": 20}
