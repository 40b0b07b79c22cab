"""Memory, descriptors, threads and series of a node agent while jobs come and go for ten minutes.

A nursery forks ranks of ever new jobs, which make stages, collectives and failures; a third leave
by SIGKILL.  Beside them files that are no records, markers, log files and processes that only look
like ranks appear and vanish.  `--seconds N` for another time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from stagewatch.core.processes import Children
from stagewatch.faults.markers import Marker, write_marker
from tests.bench.table import row
from tests.node_agent import NodeAgent

NURSERY = """
import os, random, signal, sys, time
import stagewatch
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def live(job):
    for rank in range(4):
        if rank and os.fork() == 0:
            break
    else:
        rank = 0
    stagewatch.init(random.choice(["train", "rollout"]), job_id=job, rank=rank, world_size=4)
    end = time.monotonic() + random.uniform(1, 6)
    step = 0
    while time.monotonic() < end:
        step += 1
        try:
            with stagewatch.stage(random.choice(["train", "reward", "rollout"]), step=step):
                stagewatch.scalar(f"value{random.randrange(80)}", step)
                with stagewatch.collective(f"tp:{random.randrange(40)}", op="all_reduce", size=4):
                    time.sleep(0.05)
                if random.random() < 0.1:
                    raise type(f"Error{random.randrange(1000)}", (Exception,), {})("failed")
        except Exception:
            pass
    if random.random() < 1 / 3:
        os.kill(os.getpid(), signal.SIGKILL)
    stagewatch.close()
    os._exit(0)
number = 0
while True:
    number += 1
    if os.fork() == 0:
        live(f"job-{number}")
    if number % 4 == 0 and os.fork() == 0:
        os.environ |= {"RANK": str(number % 8), "STAGEWATCH_JOB_ID": f"bare-{number}"}
        os.execv("/bin/sleep", ["sleep", str(random.uniform(1, 9))])
    time.sleep(0.5)
"""
LOOK_EVERY_SECONDS = 10.0
SETTLE_SHARE = 0.2
"""What the agent needs once, caches and limits included, it has taken by this share of the time."""


def main(arguments: Sequence[str] = ()) -> None:
    """Run one agent and print what it held at first, at most and in the end."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=churn")
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds = parser.parse_args(arguments).seconds
    directory = Path(tempfile.mkdtemp(prefix="stagewatch-churn-", dir="/dev/shm"))
    agent = NodeAgent(
        directory,
        *("--collector.kmsg.state-file", str(directory / "kmsg.json")),
        *("--collector.logs.files", f"{directory}/logs/{{job_id}}/{{rank}}.log"),
    )
    try:
        agent.start()
        with Children() as children:
            environ = os.environ | {"STAGEWATCH_DIR": str(agent.ranks)}
            nursery = children.start(
                [sys.executable, "-c", NURSERY], environ=environ, log=directory / "nursery.log"
            )
            try:
                _watch(agent, seconds)
            finally:
                _end(nursery)
        print((directory / "agent.log").read_text().strip())
    finally:
        agent.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _watch(agent: NodeAgent, seconds: float) -> None:
    began = time.monotonic()
    looks: list[dict[str, float]] = []
    number = 0
    jobs: set[str] = set()
    while (passed := time.monotonic() - began) < seconds:
        number += 1
        _rubbish(agent, number)
        time.sleep(0.1)
        if passed >= LOOK_EVERY_SECONDS * (len(looks) + 1):
            looks.append(_look(agent))
            series = agent.series()
            looks[-1]["series"] = len(series)
            jobs |= {dict(labels).get("job_id", "") for _, labels in series}
            print(f"{passed:6.0f} s ", *(f"{k} {v:.1f}" for k, v in looks[-1].items()), flush=True)
    settled = looks[int(len(looks) * SETTLE_SHARE) :]
    half = len(settled) // 2
    row("jobs seen", len(jobs), "")
    for what, unit in [("memory", "MiB"), ("descriptors", ""), ("threads", ""), ("series", "")]:
        first, last = settled[:half], settled[half:]
        row(f"{what}, median of the first half", _median(first, what), unit)
        row(f"{what}, median of the second half", _median(last, what), unit)
        row(f"{what}, at most", max(look[what] for look in settled), unit)
    row("CPU of the agent and its children", settled[-1]["cpu"] / seconds * 100, "%core")


def _median(looks: list[dict[str, float]], what: str) -> float:
    return sorted(look[what] for look in looks)[len(looks) // 2]


def _look(agent: NodeAgent) -> dict[str, float]:
    """The agent and its children, those that are just forked aside."""
    process = psutil.Process(agent.process.pid)
    found = {"memory": 0.0, "descriptors": 0.0, "threads": 0.0, "cpu": 0.0}
    for each in [process, *process.children()]:
        with contextlib.suppress(psutil.Error):
            found["memory"] += each.memory_full_info().uss / 2**20
            found["descriptors"] += each.num_fds()
            found["threads"] += each.num_threads()
            times = each.cpu_times()
            found["cpu"] += times.user + times.system
    return found


def _rubbish(agent: NodeAgent, number: int) -> None:
    """Files of ten times a second, each of which is gone a little later."""
    directory = agent.directory
    junk = agent.ranks / f"{number}-{number:08x}.rank"
    junk.write_bytes(os.urandom(number % 4096))
    marker = Marker(f"drill-{number}", f"fault{number}", time.time(), None, f"worker-{number}")
    write_marker(agent.faults, marker)
    log = directory / "logs" / f"{number // 10}" / f"{number % 10}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("RuntimeError: CUDA out of memory\n" * (number % 7))
    old = number - 50
    for path in (agent.ranks / f"{old}-{old:08x}.rank", agent.faults / f"drill-{old}.json"):
        path.unlink(missing_ok=True)
    shutil.rmtree(directory / "logs" / f"{old // 10}", ignore_errors=True)


def _end(nursery: subprocess.Popen[bytes]) -> None:
    """All of its session: the ranks are in the nursery's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(nursery.pid, signal.SIGKILL)
