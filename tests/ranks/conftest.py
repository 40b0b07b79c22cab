"""Records that ranks write, and who reads them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.ranks.records import RankRecord, parse
from stagewatch.record import H_START_TICKS
from tests.fake_clock import Clock
from tests.ranks.record_scene import RANK, Start
from tests.ranks.waits.programs import Program
from tests.records import patched, real_file
from tests.running import Python, Script


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A record of a process that ended long ago."""
    real = real_file(tmp_path_factory.mktemp("ranks"))
    return patched(real, {H_START_TICKS: 1})


@pytest.fixture
def record(raw: bytes) -> RankRecord:
    """The same, parsed, of a file of that name."""
    return replace(parse(raw), name="a")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like the one a site uses: any user may add files, none another's remove."""
    with tempfile.TemporaryDirectory(prefix="stagewatch-test-") as name:
        directory = Path(name)
        directory.chmod(0o1777)
        yield directory


@pytest.fixture
def reader(shared: Path, clock: Clock) -> Iterator[RecordDirectory]:
    """Reads `shared` as the agent does."""
    with closing(RecordDirectory(shared, Procfs(), clock=clock)) as reader:
        yield reader


@pytest.fixture
def start_rank(python: Python, shared: Path) -> Start:
    """Starts ranks with a record in `shared`, as another user if one is given."""

    def start(rank: int, *user: int, prefix: tuple[str, ...] = ()) -> Script:
        return python.ready(RANK, rank, *user, prefix=prefix, STAGEWATCH_DIR=str(shared))

    return start


@pytest.fixture
def program(python: Python) -> Iterator[Callable[..., Program]]:
    """Starts programs that end with all of their processes."""
    started: list[int] = []

    def start(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> Program:
        found = Program(python(code, *arguments, prefix=prefix))
        started.append(found.script.pid)
        return found

    yield start
    for group in started:
        while members := _members(group):
            for one in members:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            time.sleep(0.01)


def _members(group: int) -> list[psutil.Process]:
    """The processes of a group, but for multiprocessing's tracker, which ends by itself after it
    has removed the semaphores that they leave."""
    found = []
    for one in psutil.process_iter(["cmdline", "status"]):
        with suppress(ProcessLookupError):
            ended = one.info["status"] == psutil.STATUS_ZOMBIE
            tracks = any("resource_tracker" in word for word in one.info["cmdline"] or ())
            if os.getpgid(one.pid) == group and not (ended or tracks):
                found.append(one)
    return found
