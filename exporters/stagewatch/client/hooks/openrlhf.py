"""OpenRLHF: the methods of its controller and of the plain classes inside its Ray actors.

The actor classes themselves stay as they are: Ray ships them by value.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.patching import Patches, as_stage, class_in, within
from stagewatch.client.hooks.span import Names, Span, by_stage, mark, publish

# `RewardModelActor.forward` and the like are `execute_batch` of the workers, by the class that
# runs it.
NAMES = Names(
    "openrlhf",
    by_stage(
        rollout="generate_samples",
        reward="RewardModelActor.forward",
        logprob="""
            make_experience PolicyModelActor.forward ReferenceModelActor.forward
            CriticModelActor.forward
        """,
        advantage="compute_advantages_and_returns",
        train="ppo_train",
        weights_update="broadcast_to_vllm",
        checkpoint="save_logs_and_checkpoints save_ckpt save_model",
        eval="generate_eval_samples",
    ),
    scalars={
        "rollout/reward_mean": "reward",
        "kl": "kl",
        "rollout/response_length_mean": "seqlen",
        "rollout/num_samples": "batch_size",
    },
    single_controller=True,
)


def _methods(
    owner: str, *methods: str, parameters: tuple[str, ...] = ()
) -> Callable[[ModuleType, Patches], None]:
    """A plan for a module: its methods become stages of the same names."""

    def hook(module: ModuleType, patches: Patches) -> None:
        for method in methods:
            patches.plan(class_in(module, owner), method, as_stage(NAMES, method), *parameters)

    return hook


def _trainer(module: ModuleType, patches: Patches) -> None:
    """`openrlhf.trainer.ppo_trainer`: the controller's side."""
    trainer = class_in(module, "BasePPOTrainer")

    def save(self: Any, global_step: Any, logs_dict: Any = None, *_: Any, **__: Any) -> Span:
        mark(NAMES, global_step)
        publish(NAMES, logs_dict or {})
        return Span(NAMES, "save_logs_and_checkpoints", global_step)

    patches.plan(
        trainer,
        "ppo_train",
        as_stage(NAMES, "ppo_train", lambda _, global_steps: global_steps),
        "global_steps",
    )
    patches.plan(trainer, "broadcast_to_vllm", as_stage(NAMES, "broadcast_to_vllm"))
    patches.plan(trainer, "save_logs_and_checkpoints", within(save), "global_step", "logs_dict")


def _workers(module: ModuleType, patches: Patches) -> None:
    """`openrlhf.trainer.ray.launcher`: the actors of all models run it for the controller."""

    def execute(self: Any, method_name: str, *_: Any, **__: Any) -> Span | None:
        known = method_name == "forward"  # passing data on is not a stage
        return Span(NAMES, f"{type(self).__name__}.{method_name}") if known else None

    patches.plan(
        class_in(module, "BaseModelActor"), "execute_batch", within(execute), "method_name"
    )


MODULES = {
    "openrlhf.trainer.ppo_utils.samples_generator": _methods(
        "SamplesGenerator", "generate_samples", "generate_eval_samples"
    ),
    "openrlhf.trainer.ppo_utils.experience_maker": _methods(
        "RemoteExperienceMaker", "make_experience", "compute_advantages_and_returns"
    ),
    "openrlhf.trainer.ppo_trainer": _trainer,
    "openrlhf.trainer.ray.ppo_actor": _methods("ActorPPOTrainer", "ppo_train", "broadcast_to_vllm"),
    "openrlhf.trainer.ray.ppo_critic": _methods("CriticPPOTrainer", "ppo_train"),
    "openrlhf.trainer.ray.launcher": _workers,
    "openrlhf.utils.deepspeed.deepspeed": _methods("DeepspeedStrategy", "save_ckpt", "save_model"),
}
