"""What an event costs in the profiler plugin for NCCL: nanoseconds, by kind and interface.

A program in C calls it as NCCL does, two million times a kind, with its file in memory.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.bench.table import row
from tests.nccl.ring import built

BUDGET_NANOSECONDS = 100.0
ROUNDS = 5


def main() -> None:
    """Print the least of some rounds: whatever else the machine does only adds."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        plugin, harness = built(Path(directory), "-O2")
        environ = {**os.environ, "STAGEWATCH_DIR": directory}
        for version in (4, 5, 6):
            least: dict[str, float] = {}
            for _ in range(ROUNDS):
                command = [str(harness), str(plugin), str(version), "cost"]
                done = subprocess.run(
                    command, env=environ, check=True, capture_output=True, text=True
                )
                for line in done.stdout.splitlines():
                    name, nanoseconds = line.rsplit(" ", 1)
                    least[name] = min(least.get(name, 1e9), float(nanoseconds))
            for name, nanoseconds in least.items():
                row(f"interface {version}, {name}", nanoseconds, "ns", BUDGET_NANOSECONDS)
