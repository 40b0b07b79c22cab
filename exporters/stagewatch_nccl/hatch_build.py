"""Builds the plugin for its wheel, which is for this machine's kind alone."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles before the wheel is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say what the wheel is for."""
        runpy.run_path(str(Path(self.root, "__init__.py")))["build"]()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
