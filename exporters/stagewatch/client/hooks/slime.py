"""slime: its timer in the training actors, and the rollout function in its rollout manager."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.patching import Patches, class_in, plan_timer
from stagewatch.client.hooks.span import Names, Span, by_stage

NAMES = Names(
    "slime",
    by_stage(
        silent=("train", "train_wait"),
        rollout=("rollout",),
        eval=("eval",),
        logprob=("log_probs", "ref_log_probs", "teacher_log_probs"),
        train=("data_preprocess", "actor_train"),
        weights_update=("ref_model_update", "update_weights"),
        checkpoint=("save_model",),
        other=("sleep", "wake_up"),
    ),
    single_controller=True,
    roles={"rollout": "rollout", "eval": "rollout"},
)


def _timer(module: ModuleType, patches: Patches) -> None:
    """`slime.observability.timer`; before 0.3.1 `slime.utils.timer`."""
    plan_timer(patches, class_in(module, "Timer"), NAMES, start="start", stop="end")


def _rollout(module: ModuleType, patches: Patches) -> None:
    """`slime.rollout.base_types`."""

    def call(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(fn: Any, *args: Any, evaluation: bool, **kwargs: Any) -> Any:
            step = args[1] if len(args) > 1 else None  # fn(args, rollout_id, data_source)
            with Span(NAMES, "eval" if evaluation else "rollout", step):
                return original(fn, *args, evaluation=evaluation, **kwargs)

        return wrapped

    patches.plan(module, "call_rollout_fn", call, "fn", "evaluation")


MODULES = {
    "slime.observability.timer": _timer,
    "slime.utils.timer": _timer,
    "slime.rollout.base_types": _rollout,
}
