"""Calls back when a module is imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]
"""Must not raise."""


def when_imported(name: str, callback: Callback) -> Callable[[], None]:
    """Call back with the module, now or right after it is imported.

    Returns a function that cancels this.
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


class _Finder:
    """Wraps the loaders that the other finders return; it has no modules itself."""

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
        # Later users of the module (inspect, pickle) must see its real loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        while self._callbacks:
            self._callbacks.pop(0)(module)


_FINDER = _Finder()
