"""Imports single modules of an installed framework without running its packages' `__init__`.

Those pull in GPU libraries that the modules under test do not need.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


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
