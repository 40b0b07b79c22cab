"""Hooking a framework before or after it is imported, and not at all where it is not known.

The frameworks here are made up, in the shape of the real ones.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

import stagewatch
from tests.client.hooking import Write, completed, record, records

SLIME_TIMER = """
class Timer:
    def __init__(self):
        self.started = {}
        self.ended = []
    def start(self, name):
        assert name not in self.started, f"{name} already started"
        self.started[name] = 1
    def end(self, name):
        del self.started[name]
        self.ended.append(name)
"""

SLIME_ROLLOUT = """
def call_rollout_fn(fn, *args, evaluation, **kwargs):
    return fn(*args, evaluation=evaluation, **kwargs)
"""

SLIME_MANAGER = """
from slime.rollout.base_types import call_rollout_fn
def generate(rollout_id, fn):
    return call_rollout_fn(fn, None, rollout_id, None, evaluation=False)
"""


@pytest.fixture
def slime(write: Write) -> None:
    write("slime.observability.timer", SLIME_TIMER)
    write("slime.rollout.base_types", SLIME_ROLLOUT)
    write("slime.ray.rollout", SLIME_MANAGER)


def step(directory: Path) -> list[str]:
    """What a rank of the made-up slime shows while it trains."""
    timer = importlib.import_module("slime.observability.timer").Timer()
    seen = []
    for name in ("train", "actor_train"):
        timer.start(name)
    for found in records(directory):
        seen += [frame.stage for frame in found.lanes[0].frames]
    for name in ("actor_train", "train"):
        timer.end(name)
    assert timer.ended == ["actor_train", "train"]
    return seen


@pytest.mark.usefixtures("slime")
@pytest.mark.parametrize("name", ["slime", None])
def test_hooked_before_the_framework_is_imported(directory: Path, name: str | None) -> None:
    uninstall = stagewatch.install(name)
    assert "slime" not in sys.modules
    assert step(directory) == ["train"]
    uninstall()
    assert step(directory) == []
    assert completed(record(directory)) == {"train": 1}


@pytest.mark.usefixtures("slime")
def test_hooking_twice_counts_once(directory: Path) -> None:
    uninstall = stagewatch.install("slime"), stagewatch.install("slime")
    assert step(directory) == ["train"]
    assert completed(record(directory)) == {"train": 1}
    for undo in uninstall:
        undo()


@pytest.mark.usefixtures("slime")
@pytest.mark.parametrize("imported", [False, True])
def test_a_function_imported_by_name_is_hooked_too(directory: Path, imported: bool) -> None:
    if imported:
        importlib.import_module("slime.ray.rollout")
    uninstall = stagewatch.install("slime")
    manager = importlib.import_module("slime.ray.rollout")

    def rollout(args: None, rollout_id: int, source: None, evaluation: bool) -> int:
        frame = record(directory).open
        assert (frame.stage, frame.step) == ("rollout", 8)
        return rollout_id

    assert manager.generate(8, rollout) == 8
    uninstall()
    original = sys.modules["slime.rollout.base_types"].call_rollout_fn
    assert manager.call_rollout_fn is original
    assert not hasattr(original, "__stagewatch__")


@pytest.mark.usefixtures("directory", "slime")
def test_modules_keep_their_own_loader_and_functions_can_be_pickled() -> None:
    uninstall = stagewatch.install("slime")
    module = importlib.import_module("slime.rollout.base_types")
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert module.__loader__ is module.__spec__.loader
    assert "def call_rollout_fn" in inspect.getsource(module)
    assert pickle.loads(pickle.dumps(module.call_rollout_fn)) is module.call_rollout_fn
    uninstall()


@pytest.mark.parametrize("source", ["Timer = None", "class Timer:\n    start = end = 5"])
def test_an_unknown_version_gets_one_warning_and_no_hook(
    directory: Path, write: Write, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    write("slime.utils.timer", source)
    write("slime.observability.timer", source)
    uninstall = stagewatch.install("slime")
    with caplog.at_level(logging.WARNING, "stagewatch"):
        module: ModuleType = importlib.import_module("slime.utils.timer")
        importlib.import_module("slime.observability.timer")
    assert [entry.name for entry in caplog.records] == ["stagewatch"]
    assert "slime" in caplog.text and "not known" in caplog.text
    timer = getattr(module, "Timer", None)
    assert not hasattr(getattr(timer, "start", None), "__stagewatch__")
    assert records(directory) == []
    uninstall()


@pytest.mark.usefixtures("directory")
def test_an_error_in_the_frameworks_own_import_is_its_own(write: Write) -> None:
    write("slime.observability.timer", "raise OSError('its own')")
    uninstall = stagewatch.install("slime")
    with pytest.raises(OSError, match="its own"):
        importlib.import_module("slime.observability.timer")
    write("slime.observability.timer", SLIME_TIMER + "# repaired\n")
    assert importlib.import_module("slime.observability.timer").Timer.start.__stagewatch__
    uninstall()


@pytest.mark.usefixtures("directory")
def test_an_unknown_framework_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        stagewatch.install("megatron")()
    assert [entry.getMessage()[:46] for entry in caplog.records] == [
        "stagewatch: megatron: is not a known framework"
    ]
