"""Hooks the timers or context managers of a framework that has no hook of its own.

from stagewatch.client.hooks import generic

generic.hook_timer(Timer, stages={"gen": "rollout", "upd": "train"})       # start(name), stop(name)
generic.hook_context(my_module, "timed", stages={"gen": "rollout"})        # with timed(name): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stagewatch.client._harmless import warn_once
from stagewatch.client.hooks.patching import Patches, plan_timer, with_stage
from stagewatch.client.hooks.span import Names

Stages = Mapping[str, str | None]
"""Own name to canonical stage; None for a span that shows no stage."""


def hook_timer(
    timer: type,
    *,
    stages: Stages,
    start: str = "start",
    stop: str = "stop",
    framework: str = "generic",
) -> Callable[[], None]:
    """Hook a timer class whose methods `start` and `stop` take a name.

    Returns a function that removes the hook.  Never raises.
    """
    names = Names(framework, stages)
    return _hook(framework, lambda patches: plan_timer(patches, timer, names, start, stop))


def hook_context(
    owner: Any, function: str, *, stages: Stages, framework: str = "generic"
) -> Callable[[], None]:
    """Hook a function of a module or class that makes a context manager for a name.

    Returns a function that removes the hook.  Never raises.
    """
    names = Names(framework, stages)
    return _hook(framework, lambda patches: patches.plan(owner, function, with_stage(names)))


def _hook(framework: str, plan: Callable[[Patches], None]) -> Callable[[], None]:
    patches = Patches("")
    try:
        plan(patches)
        patches.apply()
    except Exception as error:
        warn_once(framework, f"not hooked: {error}", framework)
        patches.undo()
    return patches.undo
