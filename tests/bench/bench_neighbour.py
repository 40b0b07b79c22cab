"""A node agent beside a user whose stage records are as many and as full as they may be.

Eight ranks of root train. Another user keeps 256 full records, and then 8 that are renewed every 14
seconds, so that ever new jobs end.  `--seconds N` for another time each.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from stagewatch.core.processes import Children
from tests.bench.table import percentile, row
from tests.full_records import neighbour
from tests.node_agent import TRAINER, NodeAgent
from tests.waiting import wait_for

RANKS = 8
JOB = 'job_id="540"'


def main(arguments: Sequence[str] = ()) -> None:
    """Run one agent for each, and print what its page and its processes take."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=neighbour")
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args(arguments).seconds
    for title, *records in [("256 full records", 256), ("8 renewed every 14 s", 8, 14)]:
        print(f"\n{title}")
        with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as name:
            _measure(Path(name), seconds, *records)


def _measure(directory: Path, seconds: float, *records: int) -> None:
    directory.chmod(0o1777)
    agent = NodeAgent(
        directory,
        *("--collector.kmsg.state-file", str(directory / "kmsg.json")),
        *("--collector.incidents.dir", str(directory / "incidents")),
    )
    agent.ranks.chmod(0o1777)
    with Children() as children:
        log = directory / "log"
        for rank in range(RANKS):
            children.start(
                [sys.executable, "-c", TRAINER, str(rank)],
                environ=os.environ | {"STAGEWATCH_DIR": str(agent.ranks)},
                log=log,
            )
        agent.start()
        try:
            wait_for(lambda: agent.get("/metrics")[1].count("rl_rank_up{" + JOB) == RANKS, "ranks")
            time.sleep(5)
            alone = agent.get("/metrics")[1].count(JOB)
            row("a scrape before, p99", percentile(_scrapes(agent), 0.99) * 1000, "ms")
            neighbour(children, agent.ranks, log, *records)
            time.sleep(5)
            _watch(agent, alone, seconds)
        finally:
            agent.stop()


def _scrapes(agent: NodeAgent) -> list[float]:
    """How long each of some scrapes takes."""
    took = []
    for _ in range(20):
        began = time.monotonic()
        agent.get("/metrics")
        took.append(time.monotonic() - began)
        time.sleep(0.5)
    return took


def _watch(agent: NodeAgent, alone: int, seconds: float) -> None:
    took, size, lines, honest, memory = [], 0, 0, alone, 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        _, page = agent.get("/metrics")
        took.append(time.monotonic() - began)
        size, lines = max(size, len(page.encode())), max(lines, page.count("\n"))
        honest = min(honest, page.count(JOB))
        process = psutil.Process(agent.process.pid)
        everybody = [process, *process.children(recursive=True)]
        memory = max(memory, sum(one.memory_full_info().uss for one in everybody) / 2**20)
        time.sleep(0.5)
    row("page, at most", size / 1e6, "MB", 4)
    row("lines, at most", lines, "")
    row("series of the honest ranks, alone", alone, "")
    row("series of the honest ranks, at least", honest, "")
    row("memory of the agent and its children, at most", memory, "MiB", 256)
    row("a scrape, p99", percentile(took, 0.99) * 1000, "ms", 50)
    cpu = psutil.Process(agent.process.pid).cpu_times()
    age = time.time() - psutil.Process(agent.process.pid).create_time()
    row("CPU", (cpu.user + cpu.system) / age * 100, "%core")
