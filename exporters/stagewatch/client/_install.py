"""Finds RL frameworks and hooks them, whether they were imported already or will be."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

from stagewatch.client import _api
from stagewatch.client._collectives import watch_collectives
from stagewatch.client.hooks.imports import when_imported
from stagewatch.client.hooks.patching import Patches, UnknownShape
from stagewatch.client.hooks.warning import warn_once

FRAMEWORKS = ("trl", "areal", "verl", "openrlhf", "slime", "nemo_rl")


def install(name: str | None = None, *, collectives: bool = False) -> Callable[[], None]:
    """Record the stages of an RL framework through its own timers, on enter.

    `name` is one of `FRAMEWORKS`; without it, every one that is installed here is hooked.  It may
    be called before or after the framework is imported, and imports nothing of it.  The record
    begins with the first stage unless `init` was called.  A framework, or a version of it, that is
    not known gets one warning and no hook.  `collectives` also counts the entries into
    collectives, see `watch_collectives`.

    Returns a function that takes the hooks out again.  Never raises.
    """
    undo: list[Callable[[], None]] = []

    def uninstall() -> None:
        while undo:
            undo.pop()()

    try:
        if name is not None and name not in FRAMEWORKS:
            warn_once(str(name), f"is not a known framework; there are {', '.join(FRAMEWORKS)}")
            return uninstall
        found = [framework for framework in FRAMEWORKS if _is_installed(framework)]
        if name is not None and name not in found:
            warn_once(name, "is not installed here, nothing was hooked")
        elif not found:
            warn_once("install", f"none of {', '.join(FRAMEWORKS)} is installed here")
        for framework in found if name is None else [name] if name in found else []:
            undo += _hook(framework)
        if name in found:
            _api.name_framework(str(name))
        if collectives:
            undo.append(when_imported("torch", _watch(undo)))
    except Exception as error:
        warn_once("install", f"could not hook: {error}")
    return uninstall


def _hook(framework: str) -> list[Callable[[], None]]:
    hooks = importlib.import_module(f"stagewatch.client.hooks.{framework}")
    undo = []
    for module, plan in hooks.MODULES.items():
        patches = Patches(framework)
        undo.append(when_imported(module, _patch(framework, plan, patches)))
        undo.append(patches.undo)
    return undo


def _patch(
    framework: str, plan: Callable[[ModuleType, Patches], None], patches: Patches
) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        try:
            plan(module, patches)
            patches.apply()
        except UnknownShape as error:
            warn_once(framework, f"this version is not known, its stages are not seen: {error}")
        except Exception as error:
            patches.undo()
            warn_once(framework, f"could not hook {module.__name__}: {error}")

    return patch


def _watch(undo: list[Callable[[], None]]) -> Callable[[ModuleType], None]:
    """Not before `torch` itself is complete: watching needs more of it than the one module."""

    def watch(_: ModuleType) -> None:
        undo.append(
            when_imported(
                "torch.distributed", lambda module: undo.append(watch_collectives(module))
            )
        )

    return watch


def _is_installed(framework: str) -> bool:
    if framework in sys.modules:
        return True
    try:
        return importlib.util.find_spec(framework) is not None
    except (ImportError, ValueError):
        return False
