"""Where a record lies on a node without an agent: in a directory that is the user's alone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stagewatch
from stagewatch import places
from stagewatch.client import _places
from stagewatch.client._places import STALE_SECONDS, prepare
from tests.running import Python

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warned: None) -> Iterator[Path]:
    """Stands for /dev/shm on a machine without an agent."""
    memory = tmp_path / "shm"
    memory.mkdir()
    memory.chmod(0o1777)
    monkeypatch.setattr(places, "MEMORY", memory)
    monkeypatch.setattr(_places, "DEFAULT_DIRECTORY", str(tmp_path / "no-agent"))
    monkeypatch.delenv("STAGEWATCH_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield memory
    stagewatch.close()


def own(memory: Path) -> Path:
    return memory / f"stagewatch-{os.geteuid()}"


def test_without_an_agent_the_record_lies_in_a_private_directory(
    memory: Path, tmp_path: Path
) -> None:
    os.umask(before := os.umask(0))
    stagewatch.init(job_id="540", rank=1)
    assert len(list(own(memory).glob("*.rank"))) == 1
    assert own(memory).stat().st_mode & 0o777 == 0o700
    assert os.umask(before) == before
    (agents := tmp_path / "no-agent").mkdir()
    stagewatch.init()
    assert len(list(agents.glob("*.rank"))) == 1, "it comes first where there is one"


@as_root
@pytest.mark.parametrize("hostile", ["theirs", "writable", "symlink", "replaceable"])
def test_what_another_user_may_write_to_is_not_used(
    memory: Path, tmp_path: Path, hostile: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = own(memory)
    if hostile == "symlink":
        (tmp_path / "target").mkdir(0o700)
        place.symlink_to(tmp_path / "target")
    else:
        place.mkdir(0o777 if hostile == "writable" else 0o700)
    if hostile == "theirs":
        os.chown(place, NOBODY, NOBODY)
    elif hostile == "writable":
        place.chmod(0o777)
    elif hostile == "replaceable":
        memory.chmod(0o777)
    stagewatch.init()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "set STAGEWATCH_DIR to a directory" in message
    assert "\n" not in message
    assert not list(place.glob("*"))


def test_records_of_killed_processes_do_not_pile_up(memory: Path, python: Python) -> None:
    place = own(memory)
    prepare(place)
    python.ready(
        """
        import sys, time
        import stagewatch
        stagewatch.init(directory=sys.argv[1])
        print("ready", flush=True)
        time.sleep(600)
        """,
        place,
    )
    (kept,) = place.glob("*.rank")
    for name in ("1-00000001.rank", "2-00000002.rank"):
        (place / name).write_bytes(b"")
    long_ago = time.time() - STALE_SECONDS - 60
    for old in (kept, place / "1-00000001.rank"):
        os.utime(old, (long_ago, long_ago))
    stagewatch.init()
    names = {file.name for file in place.glob("*.rank")}
    assert kept.name in names
    assert "2-00000002.rank" in names  # it may still be looked at
    assert "1-00000001.rank" not in names


def test_no_place_at_all_is_one_line_with_the_remedy(
    memory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(places, "MEMORY", memory / "absent")
    caplog.set_level(logging.WARNING)
    stagewatch.init()
    stagewatch.init()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "set STAGEWATCH_DIR to a directory in memory that this user may write to" in message
