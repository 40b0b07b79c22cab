"""Records that ranks write, and who reads them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.record_directory import RecordDirectory
from stagewatch.record import H_START_TICKS
from tests.fake_clock import Clock
from tests.ranks.record_scene import RANK, Start
from tests.records import patched, real_file
from tests.running import Python, Script


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A record of a process that ended long ago."""
    real = real_file(tmp_path_factory.mktemp("ranks"))
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
