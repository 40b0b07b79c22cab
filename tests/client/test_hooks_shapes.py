"""What the hooks rely on is in the released sources, for a framework that cannot run here."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from stagewatch.client._install import FRAMEWORKS
from stagewatch.client.hooks import miles
from stagewatch.client.hooks.span import Names
from stagewatch.stages import CODES
from tests.client.hooking import frameworks_path

ALL = [import_module(f"stagewatch.client.hooks.{name}").NAMES for name in FRAMEWORKS]

OPENRLHF_METHODS = {
    "trainer/ppo_utils/samples_generator.py": {
        "SamplesGenerator.generate_samples": set(),
        "SamplesGenerator.generate_eval_samples": set(),
    },
    "trainer/ppo_utils/experience_maker.py": {
        "RemoteExperienceMaker.make_experience": set(),
        "RemoteExperienceMaker.compute_advantages_and_returns": set(),
    },
    "trainer/ppo_trainer.py": {
        "BasePPOTrainer.ppo_train": {"global_steps"},
        "BasePPOTrainer.broadcast_to_vllm": set(),
        "BasePPOTrainer.save_logs_and_checkpoints": {"global_step", "logs_dict"},
    },
    "trainer/ray/ppo_actor.py": {
        "ActorPPOTrainer.ppo_train": set(),
        "ActorPPOTrainer.broadcast_to_vllm": set(),
    },
    "trainer/ray/ppo_critic.py": {"CriticPPOTrainer.ppo_train": set()},
    "trainer/ray/launcher.py": {"BaseModelActor.execute_batch": {"method_name"}},
    "utils/deepspeed/deepspeed.py": {
        "DeepspeedStrategy.save_ckpt": set(),
        "DeepspeedStrategy.save_model": set(),
    },
}

MILES_ACTORS = {
    "backends/megatron_utils/actor.py": "MegatronTrainRayActor",
    "backends/experimental/fsdp_utils/actor.py": "FSDPTrainRayActor",
}
"""Their modules want a GPU's libraries; what else the hook replaces is run."""


@pytest.mark.parametrize("module", OPENRLHF_METHODS)
def test_openrlhf(module: str) -> None:
    package = Path(frameworks_path("openrlhf")) / "openrlhf"
    found = methods((package / module).read_text())
    for method, parameters in OPENRLHF_METHODS[module].items():
        assert parameters <= found[method], method


@pytest.mark.parametrize("module", MILES_ACTORS)
def test_miles(module: str) -> None:
    path = f"miles/{module}"
    source = (Path(frameworks_path("miles_rl")) / path).read_text()
    assert f"{MILES_ACTORS[module]}.update_weights" in methods(source)
    assert "self.weight_updater.weight_version" in source
    assert path.removesuffix(".py").replace("/", ".") in miles.MODULES


def methods(source: str) -> dict[str, set[str]]:
    """The parameters of every method of plain classes; a Ray actor's are out of reach."""
    return {
        f"{owner.name}.{method.name}": {argument.arg for argument in method.args.args}
        for owner in ast.parse(source).body
        if isinstance(owner, ast.ClassDef) and not owner.decorator_list
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
    }


@pytest.mark.parametrize("names", ALL, ids=lambda names: names.framework)
def test_every_name_leads_to_a_canonical_stage(names: Names) -> None:
    assert set(names.stages.values()) <= {*CODES, None}
    assert {"idle"}.isdisjoint(names.stages.values())
    assert set(names.roles) <= {*names.stages, "run_agent"}
