"""A profiler plugin for NCCL, which keeps in a file what each communicator has open.

`stagewatch.ranks.nccl` reads that file; `layout.h` is what both agree on.  The plugin needs neither
Python nor stagewatch: `NCCL_PROFILER_PLUGIN` names it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE / "libnccl-profiler-stagewatch.so"
"""What `NCCL_PROFILER_PLUGIN` names, once it was built."""
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")


def build(into: Path = LIBRARY, *flags: str) -> Path:
    """Build it with the system's compiler.  Raises `OSError` or `CalledProcessError`."""
    map_names = f"-ffile-prefix-map={HERE}=."
    shared = ["-fPIC", "-shared", map_names, "-o", str(into), str(HERE / "plugin.c"), "-pthread"]
    subprocess.run([os.environ.get("CC", "cc"), *FLAGS, *flags, *shared], check=True)
    return into
