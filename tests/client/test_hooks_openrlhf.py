"""OpenRLHF's controller and workers, made up in the shape of the real ones."""

from __future__ import annotations

import importlib
from pathlib import Path

import stagewatch
from tests.client.hooking import Write, record

OPENRLHF = """
from pathlib import Path
from tests.client.hooking import open_frame
class {name}:
    def __init__(self, directory=None):
        self.log = []
{methods}
"""


def test_openrlhfs_controller_and_workers(directory: Path, write: Write) -> None:
    def methods(*signatures: str) -> str:
        return "\n".join(
            f"    def {signature}:\n        self.log.append({signature.partition('(')[0]!r})\n"
            f"        return open_frame(Path({str(directory)!r}))"
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
