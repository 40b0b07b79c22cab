"""Imports single modules of an installed framework without all that they pull in.

The packages' `__init__` and some imports want GPU libraries and clients of services that what is
under test does not need.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def bare_packages(*names: str) -> None:
    """Put packages with the right path and nothing in them where `import` looks first."""
    for name in names:
        parent, _, leaf = name.rpartition(".")
        if parent:
            path = [f"{entry}/{leaf}" for entry in sys.modules[parent].__path__]
        else:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.submodule_search_locations is None:
                raise SystemExit(f"{name} is not installed")
            path = list(spec.submodule_search_locations)
        module = ModuleType(name)
        module.__path__ = path
        sys.modules[name] = module


def stand_ins(*packages: str) -> None:
    """Put empty classes in place of those of packages that are imported and not needed.

    What is installed is imported as ever.
    """
    sys.meta_path.append(_StandIns(packages))


class _StandIns(MetaPathFinder, Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        known = name.partition(".")[0] in self._packages
        return ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It has nothing of its own."""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {})


class _Nothing:
    """What a class, a type or a decorator of a package that is not needed comes to."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever it is made with."""

    def __call__(self, function: Any) -> Any:
        return function

    def __class_getitem__(cls, _: Any) -> Any:
        return cls
