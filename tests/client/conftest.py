"""The client in this very process, on a directory of its own and a clock that the test turns."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import stagewatch
from stagewatch.client import _harmless
from stagewatch.client._install import FRAMEWORKS
from stagewatch.ranks.records import RankRecord, parse
from tests.client.hooking import Write, fresh_client


@dataclass
class Client:
    """What the record of this process holds."""

    directory: Path

    def record(self) -> RankRecord:
        """The record as a reader finds it."""
        (file,) = self.directory.glob("*.rank")
        return parse(file.read_bytes())


class Clock:
    """Nanoseconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self, clock: int) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * 1e9)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not warned yet."""
    monkeypatch.setattr(_harmless, "_warned", set())


@pytest.fixture
def client(record_dir: Path, warned: None) -> Iterator[Client]:
    """A begun record of rank 3 of job 540."""
    stagewatch.init("train", job_id=540, rank=3, directory=record_dir)
    yield Client(record_dir)
    stagewatch.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time under the test's control; ask for it before `client`."""
    clock = Clock()
    monkeypatch.setattr("stagewatch.client._lane._read_clock", clock)
    monkeypatch.setattr("stagewatch.client._recorder._read_clock", clock)
    return clock


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where the record will be of a client that has just begun."""
    with fresh_client(tmp_path):
        yield tmp_path


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of a made-up framework to where `import` finds it."""
    root = tmp_path / "frameworks"
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    before = set(sys.modules)

    def write_module(name: str, source: str) -> None:
        *packages, leaf = name.split(".")
        at = root
        for package in packages:
            at /= package
            at.mkdir(parents=True, exist_ok=True)
            (at / "__init__.py").touch()
        (at / f"{leaf}.py").write_text(source)
        importlib.invalidate_caches()

    yield write_module
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in FRAMEWORKS:
            del sys.modules[name]
