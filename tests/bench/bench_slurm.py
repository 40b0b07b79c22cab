"""The Slurm agent on a large cluster: CPU, memory, series, scrape time, controller requests.

First 10,000 nodes and 100,000 jobs as text; then, where a Slurm can be started, a real slurmctld
with 2,000 nodes and 20,000 jobs.  STAGEWATCH_BENCH_JOBS sets another number of real jobs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
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
    seconds: float
    peak_mib: float
    series: int
    scrape_p50_ms: float
    scrape_p99_ms: float


def main() -> None:
    """Print all tables."""
    with tempfile.TemporaryDirectory(prefix="bench-slurm-") as name:
        bin_dir = write_commands(Path(name), nodes=10_000, jobs=100_000)
        print("10,000 nodes and 100,000 jobs, as text:")
        show(measure(str(bin_dir), os.environ))
    real_cluster()


def show(found: Measured, *, budgets: bool = True) -> None:
    """The agent's own table."""
    row("CPU of one refresh of everything", found.agent_cpu, "s", 5 if budgets else None)
    row("  and of the commands it runs", found.commands_cpu, "s")
    row("peak resident memory", found.peak_mib, "MiB", 300 if budgets else None)
    row("series exported", found.series, "", 30_000)
    row("scrape, median", found.scrape_p50_ms, "ms")
    row("scrape, p99", found.scrape_p99_ms, "ms", 50)


def measure(bin_dir: str, env: Mapping[str, str]) -> Measured:
    """The agent over these commands, or over those on PATH."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.slurm_refresh", bin_dir, str(ROUNDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**env, "PYTHONPATH": os.pathsep.join(sys.path)},
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
        seconds=sum(each["seconds"] for each in steady) / len(steady),
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


def real_cluster() -> None:
    """The same over a real slurmctld."""
    from stagewatch_lab.slurm.keeping import Keeper
    from stagewatch_lab.slurm.services import missing
    from tests.bench.slurm_cluster import filled, measure_cycles

    if why := missing():
        print(f"\nA real slurmctld: not measured: {why}")
        return
    with Keeper() as keeper:
        slurm = filled(keeper, int(os.environ.get("STAGEWATCH_BENCH_JOBS", "20000")))
        show(measure("", slurm.env), budgets=False)
        measure_cycles(keeper, slurm)


if __name__ == "__main__":
    main()
