"""Replaces functions of classes and modules, and restores them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_INHERITED = object()


class Replaced:
    """The functions that were replaced."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._replaced)

    def replace(
        self, owner: Any, name: str, wrap: Callable[[Any], Any], *, inherited: bool = False
    ) -> None:
        """Replace a function that is there and not replaced yet; an inherited one only if asked."""
        old = getattr(owner, "__dict__", {}).get(name, _INHERITED)
        if owner is None or (old is _INHERITED and not inherited):
            return
        function = getattr(owner, name, None)
        if function is None or hasattr(function, "__stagewatch__"):
            return
        new: Any = functools.wraps(function)(wrap(function))
        new.__stagewatch__ = True
        setattr(owner, name, new)
        self._replaced.append((owner, name, old, new))

    def restore(self) -> None:
        """Restore all functions that nobody else has replaced since."""
        while self._replaced:
            owner, name, old, new = self._replaced.pop()
            if vars(owner).get(name) is new:
                if old is _INHERITED:
                    delattr(owner, name)
                else:
                    setattr(owner, name, old)
