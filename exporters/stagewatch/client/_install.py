"""Finds RL frameworks and hooks them, whether they were imported already or will be."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from stagewatch.client import _api
from stagewatch.client._collectives import watch_collectives
from stagewatch.client._harmless import warn_once
from stagewatch.client.hooks.patching import Patches, UnknownShape

FRAMEWORKS = ("trl", "areal", "verl", "openrlhf", "slime", "nemo_rl")

Callback = Callable[[ModuleType], None]
"""Must not raise."""


def install(name: str | None = None, *, collectives: bool = False) -> Callable[[], None]:
    """Record the stages of an RL framework through its own timers, on enter.

    `name` is one of `FRAMEWORKS`; without it, every one that is installed here is hooked.  Call it
    before or after the framework is imported; it imports nothing of the framework itself.  The
    record begins with the first stage unless `init` was called.  A framework, or a version of one,
    that the hooks do not know gets one warning and no hook.  `collectives` also counts the entries
    into collectives, see `watch_collectives`.

    Returns a function that takes the hooks out again.  Never raises.
    """
    undo: list[Callable[[], None]] = []

    def uninstall() -> None:
        while undo:
            undo.pop()()

    try:
        every = ", ".join(FRAMEWORKS)
        if name is not None and name not in FRAMEWORKS:
            _warn(str(name), f"is not a known framework; there are {every}")
            return uninstall
        wanted = FRAMEWORKS if name is None else (name,)
        installed = [framework for framework in wanted if _is_installed(framework)]
        for framework in installed:
            undo += _hook(framework)
        if not installed and name is None:
            _warn("install", f"none of {every} is installed here")
        elif not installed:
            _warn(wanted[0], "is not installed here, nothing was hooked")
        elif name is not None:
            _api.name_framework(name)
        if collectives:
            undo.append(when_imported("torch", _watch(undo)))
    except Exception as error:
        _warn("install", f"could not hook: {error}")
    return uninstall


def when_imported(name: str, callback: Callback) -> Callable[[], None]:
    """Call back with the module, now or right after it is imported.

    Returns a function that gives up waiting for it.
    """
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return lambda: None
    waiting = _FINDER.waiting.setdefault(name, [])
    waiting.append(callback)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)

    def give_up() -> None:
        if callback in waiting:
            waiting.remove(callback)

    return give_up


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
) -> Callback:
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
    """Not before `torch` itself is complete: watching needs more of it than the one module."""

    def watch_distributed(module: ModuleType) -> None:
        undo.append(watch_collectives(module))

    def watch(_: ModuleType) -> None:
        undo.append(when_imported("torch.distributed", watch_distributed))

    return watch


def _warn(subject: str, message: str) -> None:
    warn_once(subject, message, subject)


def _is_installed(framework: str) -> bool:
    if framework in sys.modules:
        return True
    try:
        return importlib.util.find_spec(framework) is not None
    except (ImportError, ValueError):
        return False


class _Finder:
    """Wraps the loader that the other finders return; it finds nothing itself."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self.waiting.get(name):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        loader: Any = _Loader(spec.loader, self.waiting[name])
                        spec.loader = loader
                    return spec
        return None


class _Loader:
    """Loads as the real loader does, then calls back."""

    def __init__(self, loader: Any, callbacks: list[Callback]) -> None:
        self._loader = loader
        self._callbacks = callbacks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Whoever looks at the module later (inspect, pickle) finds its real loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        while self._callbacks:
            self._callbacks.pop(0)(module)


_FINDER = _Finder()
