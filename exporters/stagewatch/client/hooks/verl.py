"""verl: the timer behind all of its timers, and the states that its workers report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from stagewatch.client.hooks.names import VERL as NAMES
from stagewatch.client.hooks.patching import Patches, UnknownShape
from stagewatch.client.hooks.span import Span, mark, publish
from stagewatch.client.hooks.wrapping import with_stage


def _timers(module: ModuleType, patches: Patches) -> None:
    """`verl.utils.profiler.performance`: every `marked_timer` looks `_timer` up when it runs."""

    def timer(original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(name: str, timing_raw: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with Span(NAMES, str(name)):
                yield from original(name, timing_raw, *args, **kwargs)

        return timed

    patches.plan(module, "_timer", timer, "name", "timing_raw")


def _tracking(module: ModuleType, patches: Patches) -> None:
    """`verl.utils.tracking`."""
    tracking = getattr(module, "Tracking", None)
    states = getattr(module, "RLInsightLogger", None)
    if tracking is None:
        raise UnknownShape("verl.utils.tracking.Tracking is not there")

    def log(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, data: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
            mark(NAMES, step)
            publish(NAMES, data)
            return original(self, data, step, *args, **kwargs)

        return wrapped

    patches.plan(tracking, "log", log, "data", "step")
    if states is not None:  # since 0.9; the workers of older versions report no states
        patches.plan(states, "trace_state", with_stage(NAMES), "state_name")


MODULES = {
    "verl.utils.profiler.performance": _timers,
    "verl.utils.tracking": _tracking,
}
