"""AReaL: its tracer's scopes and its tracker's timings, which mostly come in pairs.

A pair is one stage: the inner span counts as part of the outer one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.names import AREAL as NAMES
from stagewatch.client.hooks.patching import Patches, UnknownShape
from stagewatch.client.hooks.span import mark, publish
from stagewatch.client.hooks.wrapping import with_stage


def _scopes(module: ModuleType, patches: Patches) -> None:
    """`areal.utils.perf_tracer`."""

    def step(*_: Any, args: Any = None, **__: Any) -> Any:
        return args.get("global_step") if args else None

    for name in ("trace_scope", "atrace_scope"):
        patches.plan(module, name, with_stage(NAMES, step), "name", "args")
    for name in ("trace_session_phase", "atrace_session_phase"):
        patches.plan(module, name, with_stage(NAMES), "phase")


def _timings(module: ModuleType, patches: Patches) -> None:
    """`areal.utils.stats_tracker`."""
    tracker = getattr(module, "DistributedStatsTracker", None)
    if tracker is None:
        raise UnknownShape("areal.utils.stats_tracker.DistributedStatsTracker is not there")
    patches.plan(tracker, "record_timing", with_stage(NAMES), "key")
    # The module's own function is a method that was bound before the class was changed.
    patches.plan(module, "record_timing", with_stage(NAMES), "key")


def _statistics(module: ModuleType, patches: Patches) -> None:
    """`areal.utils.stats_logger`."""
    logger = getattr(module, "StatsLogger", None)
    if logger is None:
        raise UnknownShape("areal.utils.stats_logger.StatsLogger is not there")

    def commit(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(
            self: Any, epoch: Any, step: Any, global_step: Any, data: Any, *args: Any, **kwargs: Any
        ) -> Any:
            mark(NAMES, global_step)
            for values in data if isinstance(data, list) else [data]:
                publish(NAMES, values)
            return original(self, epoch, step, global_step, data, *args, **kwargs)

        return wrapped

    patches.plan(logger, "commit", commit, "epoch", "step", "global_step", "data")


MODULES = {
    "areal.utils.perf_tracer": _scopes,
    "areal.utils.stats_tracker": _timings,
    "areal.utils.stats_logger": _statistics,
}
