"""Builds the plugin for its wheel, which is for the machines and C libraries that can load it."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles before the wheel is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say what the wheel is for: PEP 600, by the symbols that the plugin needs."""
        library = runpy.run_path(str(Path(self.root, "__init__.py")))["build"]()
        compiler = [os.environ.get("CC", "cc"), "-dumpmachine"]
        target = subprocess.run(compiler, check=True, capture_output=True, text=True).stdout
        needed = re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
        since = max(17, *map(int, needed))
        build_data["tag"] = f"py3-none-manylinux_2_{since}_{target.partition('-')[0]}"
        build_data["pure_python"] = False
