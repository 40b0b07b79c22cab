"""Faults that are real: file systems, networks and processes that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.faultfs import FaultFs, build, missing


@pytest.fixture(scope="session")
def faultfs_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled file system."""
    if reason := missing():
        pytest.skip(f"the misbehaving file system {reason}")
    return build(tmp_path_factory.mktemp("faultfs"))


@pytest.fixture
def faultfs(faultfs_program: Path, tmp_path: Path) -> Iterator[Callable[[str], FaultFs]]:
    """Mounts by name, unmounted with the test."""
    with ExitStack() as stack:

        def mount(name: str) -> FaultFs:
            found = FaultFs(faultfs_program, tmp_path / name)
            stack.callback(found.close)
            return found

        yield mount
