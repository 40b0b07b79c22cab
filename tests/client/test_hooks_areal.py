"""What AReaL's statistics and engines tell, on modules in the shape of the real ones."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import stagewatch
from tests.client.hooking import Write, record

STATISTICS = """
from types import SimpleNamespace
dist = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 0)
class StatsLogger:
    def commit(self, epoch, step, global_step, data):
        pass
"""
ENGINE = """
class {name}:
    def set_version(self, version):
        self._version = version
"""
STEP = {
    "ppo_actor/task_reward/avg": 0.25,
    "ppo_actor/n_seqs": 8,
    "ppo_actor/n_tokens": 4096,
    "ppo_actor/update/version_stats/sample_staleness_theta_avg": 1.5,
}


@pytest.fixture(autouse=True)
def areal(write: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hooked one, in a training rank."""
    monkeypatch.setenv("RANK", "0")
    write("areal.utils.stats_logger", STATISTICS)
    write("areal.engine.fsdp_engine", ENGINE.format(name="FSDPEngine"))
    write("areal.engine.megatron_engine", "")
    write("areal.infra.remote_inf_engine", ENGINE.format(name="RemoteInfEngine"))
    undo = stagewatch.install("areal")
    yield
    undo()


def test_the_first_rank_counts_what_all_have_trained_on(directory: Path) -> None:
    module = importlib.import_module("areal.utils.stats_logger")
    module.StatsLogger().commit(0, 5, 6, STEP)
    module.dist.get_rank = lambda: 1
    module.StatsLogger().commit(0, 6, 7, [STEP])
    found = record(directory)
    assert found.work == {"train": (4096.0, 0.0, 8.0)}
    assert found.scalars == {"reward": 0.25, "batch_size": 8.0, "staleness": 1.5}
    assert found.lanes[0].step == 7


def test_engines_tell_the_version_that_they_are_set_to(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = importlib.import_module("areal.engine.fsdp_engine").FSDPEngine()
    trainer.set_version(7)
    importlib.import_module("areal.infra.remote_inf_engine").RemoteInfEngine().set_version(6)
    importlib.import_module("areal.engine.megatron_engine")
    assert trainer._version == 7
    assert record(directory).scalars == {"weight_version": 7.0, "rollout_weight_version": 6.0}
    assert caplog.messages == [], "an engine that is not there is none"
