"""Cleans up after a demo that was killed: `python -m stagewatch.demo.janitor DIRECTORY PID`.

Waits for the end of its standard input, which comes when the demo ends in whatever way.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from stagewatch.demo.prometheus import CONTAINER

PATIENCE_SECONDS = 30.0


def remove(directory: Path) -> None:
    """Remove a directory to which processes may still write as they end."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while directory.exists() and time.monotonic() < limit:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.1)


if __name__ == "__main__":
    sys.stdin.read()
    for engine in filter(None, map(shutil.which, ("docker", "podman"))):
        container = f"{CONTAINER}-{sys.argv[2]}"
        subprocess.run([engine, "rm", "--force", container], capture_output=True, check=False)
    remove(Path(sys.argv[1]))
