"""NeMo-RL: its timer, and the metrics it logs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stagewatch.client.hooks.patching import Patches, class_in, plan_timer, within
from stagewatch.client.hooks.span import Names, by_stage, mark, publish

NAMES = Names(
    "nemo_rl",
    by_stage(
        silent="""
            total_step_time idle/buffer_starvation idle/generation_limit_pause idle/refit_bubble
            idle/refit_event_wait idle/validation
        """,
        init="init/total",
        weights_update="""
            prepare_for_generation prepare_for_generation/total
            prepare_for_generation/transfer_and_update_weights weight_sync offload_before_refit
            offload_after_refit policy_offload_after_refit
        """,
        rollout="generation exposed_generation",
        reward="reward_calculation",
        logprob="""
            logprob_inference_prep policy_and_reference_logprobs teacher_logprob_inference_prep
            teacher_logprob_inference teacher_forward value_inference get_logprobs
            get_topk_logits use_reference_model
        """,
        advantage="advantage_calculation",
        train="training_prep policy_training value_training_prep value_training train",
        checkpoint="checkpointing save_checkpoint",
        eval="total_validation_time validation_total",
    ),
    scalars={
        "reward": "reward",
        "kl_penalty": "kl",
        "mean_gen_tokens_per_sample": "seqlen",
    },
    single_controller=True,
)


def _timer(module: ModuleType, patches: Patches) -> None:
    """`nemo_rl.utils.timer`."""
    plan_timer(patches, class_in(module, "Timer"), NAMES, start="start", stop="stop")


def _logger(module: ModuleType, patches: Patches) -> None:
    """`nemo_rl.utils.logger`."""

    def log(self: Any, metrics: Any, step: Any, prefix: Any = "", *_: Any, **__: Any) -> None:
        if prefix == "train":
            mark(NAMES, step)
            publish(NAMES, metrics)

    logger = class_in(module, "Logger")
    patches.plan(logger, "log_metrics", within(log), "metrics", "step", "prefix")


MODULES = {"nemo_rl.utils.timer": _timer, "nemo_rl.utils.logger": _logger}
