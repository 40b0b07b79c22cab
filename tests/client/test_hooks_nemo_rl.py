"""NeMo RL's timer and logger, made up in the shape of the real ones."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import stagewatch
from tests.client.hooking import Write, completed, open_frame, record

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
    with timer.time("total_step_time"):
        with timer.time("generation"):
            assert open_frame(directory) == ("rollout", "generation", None)
        with timer.time("policy_training"), timer.time("policy_training/submit_training_futures"):
            assert open_frame(directory) == ("train", "policy_training/submit_training_", None)
        with pytest.raises(OSError), timer.time("checkpointing"):
            raise OSError("disk full")
    assert logger.log_metrics({"reward": 0.5}, 3, prefix="train") == "train"
    logger.log_metrics({"reward": 0.9}, 4, prefix="validation")
    found = record(directory)
    assert completed(found) == {"rollout": 1, "train": 1, "checkpoint": 1}
    assert dict(found.failures) == {("checkpoint", "OSError"): 1}
    assert (found.lanes[0].step, dict(found.scalars)) == (3, {"reward": 0.5})
    uninstall()
