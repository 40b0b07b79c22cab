"""NeMo-RL: its timer, and the metrics it logs."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.generic import plan_timer
from stagewatch.client.hooks.names import NEMO_RL as NAMES
from stagewatch.client.hooks.patching import Patches, UnknownShape
from stagewatch.client.hooks.span import mark, publish


def _timer(module: ModuleType, patches: Patches) -> None:
    """`nemo_rl.utils.timer`."""
    timer = getattr(module, "Timer", None)
    if timer is None:
        raise UnknownShape("nemo_rl.utils.timer.Timer is not there")
    plan_timer(patches, timer, NAMES, start="start", stop="stop")


def _logger(module: ModuleType, patches: Patches) -> None:
    """`nemo_rl.utils.logger`."""
    logger = getattr(module, "Logger", None)
    if logger is None:
        raise UnknownShape("nemo_rl.utils.logger.Logger is not there")

    def log(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, metrics: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
            if (args[0] if args else kwargs.get("prefix")) == "train":
                mark(NAMES, step)
                publish(NAMES, metrics)
            return original(self, metrics, step, *args, **kwargs)

        return wrapped

    patches.plan(logger, "log_metrics", log, "metrics", "step", "prefix")


MODULES = {"nemo_rl.utils.timer": _timer, "nemo_rl.utils.logger": _logger}
