"""The Slurm agent on 10,000 nodes and 100,000 jobs, as text: CPU, memory, series, scrape time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.slurm_load import write_commands
from tests.bench.table import percentile, row

ROUNDS = 4
SCRAPES = 50


@dataclass(frozen=True)
class Measured:
    """What the agent cost; the first round, which also sets everything up, is left out."""

    agent_cpu: float
    commands_cpu: float
    peak_mib: float
    series: int
    scrape_p50_ms: float
    scrape_p99_ms: float


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="bench-slurm-") as name:
        found = measure(str(write_commands(Path(name), nodes=10_000, jobs=100_000)))
    row("CPU of one refresh of everything", found.agent_cpu, "s", 5)
    row("  and of the commands it runs", found.commands_cpu, "s")
    row("peak resident memory", found.peak_mib, "MiB", 300)
    row("series exported", found.series, "", 30_000)
    row("scrape, median", found.scrape_p50_ms, "ms")
    row("scrape, p99", found.scrape_p99_ms, "ms", 50)


def measure(bin_dir: str) -> Measured:
    """The agent over the commands of a directory."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.slurm_refresh", bin_dir, str(ROUNDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        rounds: list[dict[str, Any]] = [
            json.loads(process.stdout.readline()) for _ in range(ROUNDS)
        ]
        for each in rounds:
            if each["failed"]:
                print(f"  these failed: {', '.join(each['failed'])}")
        last: dict[str, Any] = json.loads(process.stdout.readline())
        times, body = _scrape(last["port"])
    finally:
        process.stdin.close()
        process.wait(60)
    steady = rounds[1:]
    return Measured(
        agent_cpu=sum(each["agent_cpu"] for each in steady) / len(steady),
        commands_cpu=sum(each["commands_cpu"] for each in steady) / len(steady),
        peak_mib=last["peak"] / 2**20,
        series=sum(1 for line in body.splitlines() if line and not line.startswith("#")),
        scrape_p50_ms=percentile(times, 0.5) * 1000,
        scrape_p99_ms=percentile(times, 0.99) * 1000,
    )


def _scrape(port: int) -> tuple[list[float], str]:
    times, body = [], ""
    for _ in range(SCRAPES):
        begin = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            body = answer.read().decode()
        times.append(time.perf_counter() - begin)
    return times, body


if __name__ == "__main__":
    main()
