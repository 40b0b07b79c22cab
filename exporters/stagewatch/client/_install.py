"""Looks for RL frameworks and hooks them, before or after they are imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from stagewatch.client._collectives import watch_collectives
from stagewatch.client._flight_recorder import make_pipe
from stagewatch.client._harmless import warn_once
from stagewatch.client._imports import Callback, when_imported

if TYPE_CHECKING:
    from stagewatch.client.hooks.patching import Patches

FRAMEWORKS = ("trl", "areal", "verl", "openrlhf", "slime", "miles", "nemo_rl")
PROGRAM = "torch"
"""The hook for a program without a framework; only by its name."""


def install(name: str | None = None, *, collectives: bool = True) -> Callable[[], None]:
    """Record the stages of an RL framework through its own timers, on enter.

    `name` is one of `FRAMEWORKS`; without it, all are hooked.  `torch` hooks a training loop
    without a framework, see `stagewatch.client.hooks.torch`.  Call it before or after the import of
    the framework; it imports nothing of the framework itself.  The record begins with the first
    stage unless `init` was called.  An unknown framework or version gets one warning and no hook.
    Unless `collectives` is false, it also records PyTorch's collectives, see `watch_collectives`.

    Returns a function that removes the hooks.  Never raises.
    """
    if name is None:
        return _install(FRAMEWORKS, collectives)
    if name in (*FRAMEWORKS, PROGRAM):
        return _install((name,), collectives)
    _warn(str(name), f"is not a known framework; there are {', '.join((*FRAMEWORKS, PROGRAM))}")
    return lambda: None


def watch_program() -> None:
    """Hook whatever this program will import, for a loader."""
    _install((*FRAMEWORKS, PROGRAM), collectives=True)
    when_imported(PROGRAM, make_pipe)


def _install(frameworks: Sequence[str], collectives: bool) -> Callable[[], None]:
    undo: list[Callable[[], None]] = []

    def uninstall() -> None:
        while undo:
            undo.pop()()

    try:
        for framework in frameworks:
            undo += _hook(framework)
        if collectives:
            undo.append(when_imported("torch", _watch(undo)))
    except Exception as error:
        _warn("install", f"could not hook: {error}")
    return uninstall


def _hook(framework: str) -> list[Callable[[], None]]:
    from stagewatch.client.hooks.patching import Patches  # programs without hooks do not pay for it

    hooks = importlib.import_module(f"stagewatch.client.hooks.{framework}")
    undo = []
    for module, plan in hooks.MODULES.items():
        patches = Patches(framework)
        undo.append(when_imported(module, _patch(framework, plan, patches)))
        undo.append(patches.undo)
    return undo


def _patch(
    framework: str, plan: Callable[[ModuleType, Patches], None], patches: Patches
) -> Callback:
    from stagewatch.client.hooks.patching import UnknownShape

    def patch(module: ModuleType) -> None:
        try:
            plan(module, patches)
            patches.apply()
        except UnknownShape as error:
            _warn(framework, f"this version is not known, its stages are not seen: {error}")
        except Exception as error:
            patches.undo()
            _warn(framework, f"could not hook {module.__name__}: {error}")

    return patch


def _watch(undo: list[Callable[[], None]]) -> Callback:
    """Wait until `torch` itself is complete: watching needs more than this one module."""

    def watch_distributed(module: ModuleType) -> None:
        undo.append(watch_collectives(module))

    def watch(_: ModuleType) -> None:
        undo.append(when_imported("torch.distributed", watch_distributed))

    return watch


def _warn(subject: str, message: str) -> None:
    warn_once(subject, message, subject)
