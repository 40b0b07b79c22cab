"""Users who mount file systems of their own, which never answer, where records and markers lie.

fusermount3(1) lets a user mount on what he may write to; `allow_other` lets the agent in.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.places import readable_places
from stagewatch.ranks.record_directory import RECHECK_SECONDS, RecordDirectory
from tests.fake_clock import Clock
from tests.fakes.faultfs import FaultFs
from tests.ranks.record_scene import as_root
from tests.ranks.test_places import begin, memory, place_of
from tests.records import place
from tests.running import Python
from tests.waiting import wait_for

__all__ = ["memory"]

T = TypeVar("T")

MountAt = Callable[[Path], FaultFs]


@pytest.fixture
def silent_at(faultfs_program: Path, tmp_path: Path) -> Iterator[MountAt]:
    """Mounts a file system on a directory, which answers nothing then."""
    with ExitStack() as stack:

        def mount(point: Path) -> FaultFs:
            found = FaultFs(faultfs_program, tmp_path / f"fuse-{point.name}", point)
            stack.callback(found.close)
            found.fault("hang")
            return found

        yield mount


def answer(call: Callable[[], T]) -> T:
    """What it returns; fails, and leaves the call behind, where that takes too long."""
    answers: list[T] = []
    threading.Thread(target=lambda: answers.append(call()), daemon=True).start()
    wait_for(lambda: answers, "an answer")
    return answers[0]


def test_a_mount_in_the_place_of_a_record_is_passed_over(
    reader: RecordDirectory, shared: Path, raw: bytes, silent_at: MountAt
) -> None:
    place(shared, raw, 1)
    silent_at(shared / "2-00000002.rank")
    for _ in range(2):
        assert [record.name for record in answer(reader.read)] == ["1-00000001.rank"]
        assert reader.skipped == {"mount": 1}


@as_root
def test_a_mount_over_a_private_directory_is_passed_over(
    memory: Path, python: Python, clock: Clock, silent_at: MountAt
) -> None:
    """Before the agent lists the directories, and once it knows them."""
    place_of(memory, 65533)
    runtime = memory / "run-user"
    for user in ("65532", "65534"):
        (runtime / user / "stagewatch").mkdir(parents=True)
    hostile = runtime / "65534"
    for path in (runtime / "65532" / "stagewatch", runtime / "65534" / "stagewatch"):
        owner = int(path.parent.name)
        os.chown(path, owner, owner)
    pid = begin(python, memory / "stagewatch-65533", 65533)
    assert len(readable_places()) == 3
    directory = RecordDirectory(memory / "none", Procfs(), private=readable_places, clock=clock)
    with closing(directory) as reader:
        assert [record.pid for record in reader.read()] == [pid]
        silent = silent_at(hostile)
        assert [record.pid for record in answer(reader.read)] == [pid]
        clock.now += RECHECK_SECONDS
        assert [record.pid for record in answer(reader.read)] == [pid]
        assert len(answer(readable_places)) == 2
        silent.close()
