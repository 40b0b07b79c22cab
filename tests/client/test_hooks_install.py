"""Hooking a framework before or after it is imported, and not at all where it is not known.

The frameworks here are made up, in the shape of the real ones.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import stagewatch
from tests.client.hooking import completed, fresh_client, record, records

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

Write = Callable[[str, str], None]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
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
        if name.partition(".")[0] in ("slime", "nemo_rl", "openrlhf", "areal", "trl", "verl"):
            del sys.modules[name]


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
def test_hooked_after_the_framework_is_imported(directory: Path) -> None:
    assert step(directory) == []
    uninstall = stagewatch.install("slime")
    assert step(directory) == ["train"]
    uninstall()


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
        assert frame is not None
        assert (frame.stage, frame.step) == ("rollout", 8)
        return rollout_id

    assert manager.generate(8, rollout) == 8
    uninstall()
    original = sys.modules["slime.rollout.base_types"].call_rollout_fn
    assert manager.call_rollout_fn is original
    assert not hasattr(original, "__stagewatch__")


@pytest.mark.usefixtures("slime")
def test_modules_keep_their_own_loader_and_functions_can_be_pickled() -> None:
    uninstall = stagewatch.install("slime")
    module = importlib.import_module("slime.rollout.base_types")
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert module.__loader__ is module.__spec__.loader
    assert "def call_rollout_fn" in inspect.getsource(module)
    assert pickle.loads(pickle.dumps(module.call_rollout_fn)) is module.call_rollout_fn
    uninstall()


@pytest.mark.parametrize(
    "source",
    [
        "",
        "Timer = None",
        "class Timer:\n    def start(self, name): pass",
        "class Timer:\n    start = end = 5",
    ],
    ids=["empty", "no class", "no end", "no functions"],
)
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


def test_an_error_in_the_frameworks_own_import_is_its_own(write: Write) -> None:
    write("slime.observability.timer", "raise OSError('its own')")
    uninstall = stagewatch.install("slime")
    with pytest.raises(OSError, match="its own"):
        importlib.import_module("slime.observability.timer")
    write("slime.observability.timer", SLIME_TIMER + "# repaired\n")
    assert importlib.import_module("slime.observability.timer").Timer.start.__stagewatch__
    uninstall()


@pytest.mark.usefixtures("directory")
def test_what_is_not_known_or_not_installed_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagewatch.client._install._is_installed", lambda name: False)
    for _ in range(2):
        stagewatch.install("megatron")
        stagewatch.install("nemo_rl")
        stagewatch.install()
    messages = [entry.getMessage() for entry in caplog.records]
    assert len(messages) == 3
    assert "not a known framework" in messages[0]
    assert "not installed" in messages[1]
    assert "none of" in messages[2]


def test_the_framework_is_named_in_a_record_that_has_begun(directory: Path, slime: None) -> None:
    stagewatch.init(rank=1)
    uninstall = stagewatch.install("slime")
    assert record(directory).framework == "slime"
    stagewatch.init(rank=2)
    assert record(directory).framework == "slime"
    uninstall()


OPENRLHF = """
class {name}:
    def __init__(self, directory=None):
        self.log = []
{methods}
"""


def test_openrlhfs_controller_and_workers(directory: Path, write: Write) -> None:
    def methods(*signatures: str) -> str:
        return "\n".join(
            f"    def {signature}:\n        self.log.append({signature.partition('(')[0]!r})\n"
            f"        import tests.client.test_hooks_install as t; return t.open_frame()"
            for signature in signatures
        )

    write("openrlhf.trainer.ppo_trainer", OPENRLHF.format(name="BasePPOTrainer", methods=methods(
        "ppo_train(self, global_steps)", "broadcast_to_vllm(self)",
        "save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None)",
    )))  # fmt: skip
    write("openrlhf.trainer.ray.launcher", OPENRLHF.format(name="BaseModelActor", methods=methods(
        "execute_batch(self, method_name, all_data, start_idx, end_idx)",
    )))  # fmt: skip
    uninstall = stagewatch.install("openrlhf")
    trainer = importlib.import_module("openrlhf.trainer.ppo_trainer").BasePPOTrainer()
    launcher = importlib.import_module("openrlhf.trainer.ray.launcher")
    OPEN["directory"] = directory
    assert trainer.ppo_train(4) == ("train", "ppo_train", 4)
    assert trainer.broadcast_to_vllm() == ("weights_update", "broadcast_to_vllm", 4)
    logs = {"rollout/reward_mean": 2.5}
    assert trainer.save_logs_and_checkpoints(5, logs) == (
        "checkpoint", "save_logs_and_checkpoints", 5,
    )  # fmt: skip
    for actor, stage in (("RewardModelActor", "reward"), ("ReferenceModelActor", "logprob")):
        worker = type(actor, (launcher.BaseModelActor,), {})()
        assert worker.execute_batch("forward", {}, 0, 1)[:2] == (stage, f"{actor}.forward")
        assert worker.execute_batch("append", {}, 0, 1) is None
    found = record(directory)
    assert dict(found.scalars) == {"reward": 2.5}
    assert found.role == "controller"
    uninstall()


NEMO_TIMER = """
from contextlib import contextmanager
class Timer:
    def __init__(self): self.running = {}
    def start(self, label, should_log=True): self.running[label] = 1
    def stop(self, label, should_log=True): return self.running.pop(label)
    @contextmanager
    def time(self, label, should_log=True):
        self.start(label, should_log)
        try:
            yield
        finally:
            self.stop(label, should_log)
"""
NEMO_LOGGER = """
class Logger:
    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        return prefix
"""


def test_nemo_rls_timer_and_metrics(directory: Path, write: Write) -> None:
    write("nemo_rl.utils.timer", NEMO_TIMER)
    write("nemo_rl.utils.logger", NEMO_LOGGER)
    uninstall = stagewatch.install("nemo_rl")
    timer = importlib.import_module("nemo_rl.utils.timer").Timer()
    logger = importlib.import_module("nemo_rl.utils.logger").Logger()
    OPEN["directory"] = directory
    with timer.time("total_step_time"):
        with timer.time("generation"):
            assert open_frame() == ("rollout", "generation", None)
        with timer.time("policy_training"), timer.time("policy_training/submit_training_futures"):
            assert open_frame() == ("train", "policy_training/submit_training_", None)
        with pytest.raises(OSError), timer.time("checkpointing"):
            raise OSError("disk full")
    assert logger.log_metrics({"reward": 0.5}, 3, prefix="train") == "train"
    logger.log_metrics({"reward": 0.9}, 4, prefix="validation")
    found = record(directory)
    assert completed(found) == {"rollout": 1, "train": 1, "checkpoint": 1}
    assert dict(found.failures) == {("checkpoint", "OSError"): 1}
    assert (found.lanes[0].step, dict(found.scalars)) == (3, {"reward": 0.5})
    uninstall()


OPEN: dict[str, Path] = {}


def open_frame() -> tuple[str, str, int | None] | None:
    """What the record shows now."""
    frame = record(OPEN["directory"]).open
    return None if frame is None else (frame.stage, frame.substage, frame.step)
