"""Replaces functions of a framework, all or none of a set, and puts them back."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Wrapping = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the new function out of the old one."""


class UnknownShape(Exception):
    """The framework is not as this hook knows it; says what is missing."""


@dataclass(frozen=True, slots=True)
class _Change:
    owner: Any
    name: str
    old: Any
    new: Any


@dataclass(slots=True)
class Patches:
    """Changes that are planned first, so that a surprise leaves everything as it was."""

    package: str
    """Modules of this package that imported a replaced function by name get the new one."""
    _changes: list[_Change] = field(default_factory=list)

    def plan(self, owner: Any, name: str, wrap: Wrapping, *parameters: str) -> None:
        """Replace `owner.name`, which must take these parameters.  Raises `UnknownShape`."""
        where = f"{getattr(owner, '__name__', owner)}.{name}"
        old = vars(owner).get(name)
        function = old.__func__ if isinstance(old, (classmethod, staticmethod)) else old
        if not callable(function):
            raise UnknownShape(f"{where} is not there")
        if getattr(function, "__stagewatch__", False):
            return
        known = _parameters(function)
        for parameter in parameters:
            if parameter not in known:
                raise UnknownShape(f"{where} takes no {parameter!r}")
        made = functools.wraps(function)(wrap(function))
        made.__stagewatch__ = True  # type: ignore[attr-defined]
        new = type(old)(made) if isinstance(old, (classmethod, staticmethod)) else made
        self._changes.append(_Change(owner, name, old, new))

    def apply(self) -> None:
        """Carry the plan out."""
        for change in self._changes:
            setattr(change.owner, change.name, change.new)
            self._rename(change.owner, change.old, change.new)

    def undo(self) -> None:
        """Put everything back that is still as it was left."""
        for change in reversed(self._changes):
            if vars(change.owner).get(change.name) is change.new:
                setattr(change.owner, change.name, change.old)
            self._rename(change.owner, change.new, change.old)
        self._changes.clear()

    def _rename(self, owner: Any, old: Any, new: Any) -> None:
        """Where `from owner import name` has put the old function, put the new one."""
        if not inspect.ismodule(owner):
            return
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == self.package:
                for attribute, value in list(getattr(module, "__dict__", {}).items()):
                    if value is old:
                        setattr(module, attribute, new)


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
