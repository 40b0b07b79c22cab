"""slime: its timer in the training actors, and the rollout function in its rollout manager."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.generic import plan_timer
from stagewatch.client.hooks.names import SLIME as NAMES
from stagewatch.client.hooks.patching import Patches, UnknownShape
from stagewatch.client.hooks.span import Span


def _timer(module: ModuleType, patches: Patches) -> None:
    """`slime.observability.timer`; before 0.3.1 `slime.utils.timer`."""
    timer = getattr(module, "Timer", None)
    if timer is None:
        raise UnknownShape(f"{module.__name__}.Timer is not there")
    plan_timer(patches, timer, NAMES, start="start", stop="end")


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
