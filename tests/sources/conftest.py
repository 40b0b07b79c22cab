"""Fixtures of the sources' tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.record import H_START_TICKS
from stagewatch.sources.gpu_reader import GpuReader
from stagewatch.sources.record_directory import RecordDirectory
from tests.clock import Clock
from tests.records import patched, real_record
from tests.running import Python, Script
from tests.sources.gpu_readers import Make
from tests.sources.log_reader import OOM
from tests.sources.record_scene import RANK, Start


@pytest.fixture
def make_reader() -> Iterator[Make]:
    """Makes readers with a quick back-off, and closes them."""
    readers: list[GpuReader] = []

    def build(**arguments: object) -> GpuReader:
        arguments = {"timeout": 20.0, "backoff": (0.01, 0.02), **arguments}
        readers.append(GpuReader(**arguments))  # type: ignore[arg-type]
        return readers[-1]

    yield build
    for reader in readers:
        reader.close()


@pytest.fixture
def clock() -> Clock:
    """For what is tested; the test turns it."""
    return Clock()


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A record of a process that ended long ago."""
    real = real_record(tmp_path_factory.mktemp("ranks"))
    return patched(real, {H_START_TICKS: 1})


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
        script = python(RANK, rank, *user, prefix=prefix, STAGEWATCH_DIR=str(shared))
        script.said("ready")
        return script

    return start


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A rank's log, with a line from before the agent."""
    path = tmp_path / "rank_5.log"
    path.write_text("before the agent: " + OOM)
    return path
