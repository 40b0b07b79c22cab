"""Scrape latency, CPU and memory of a node agent with 8 GPUs and 8 ranks, 4 scrapers, 5 viewers.

The GPUs are the fake driver library's, read through the real path: pynvml in the child process.
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import random
import re
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import psutil

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from stagewatch.ranks.model import Rank
from stagewatch.ranks.stacks import StackTaker
from stagewatch.ranks.waits.ends import waits_of
from stagewatch.ranks.waits.look import Waits
from stagewatch.ranks.waits.model import Waiting
from stagewatch.web.status import REFRESH_SECONDS
from tests.bench.table import percentile, row
from tests.fakes.nvml import FakeNvml, build
from tests.waiting import becomes

RANKS = 8
TRAINER = """
import time, stagewatch
stagewatch.init()
step = 0
while True:
    step += 1
    for name in ("rollout", "reward", "logprob", "train", "weights_update"):
        with stagewatch.stage(name, step=step):
            time.sleep(0.1)
    for name in ("reward", "kl", "batch_size", "samples_per_second"):
        stagewatch.scalar(name, step)
"""
STUCK = """
import json, logging, threading, time, stagewatch
stagewatch.init(job_id="2")
for _ in range(8):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
def down(depth):
    if depth:
        down(depth - 1)
    print("stuck", flush=True)
    time.sleep(3600)
down(40)
"""
"""A rank with as many threads and frames as one of PyTorch's has."""
CALLER = """
import os, subprocess, sys
held = "held = [os.pipe() for _ in range(50)]"
source = f"import os, sys; {held}; print(1, flush=True); sys.stdin.read()"
pipe = subprocess.PIPE
helpers = [
    subprocess.Popen([sys.executable, "-c", source], stdin=pipe, stdout=pipe)
    for _ in range(int(sys.argv[1]))
]
for helper in helpers:
    helper.stdout.readline()
print("calls", flush=True)
helpers[0].stdout.readline()
"""
"""A rank that waits for one of its helpers; each has a hundred descriptors, and ends with it."""
HELPERS = (3, 3, 3, 3, 2, 2, 2, 2)
"""How many each of the ranks has."""
SCRAPERS = 4
SCRAPES = 250
SETTLE_SECONDS = 15
WATCH_SECONDS = 60
VIEWERS = 5
VIEWER_PAIRS = 5
VIEWER_SECONDS = 20


def main() -> None:
    """Run one agent and print its figures."""
    directory = Path(tempfile.mkdtemp(prefix="stagewatch-bench-"))
    try:
        with Children() as children:
            _measure(directory, children)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measure(directory: Path, children: Children) -> None:
    (library := directory / "nvml").mkdir()
    fake = FakeNvml(build(library), directory)
    (ranks := directory / "ranks").mkdir()
    for rank in range(RANKS):
        environ = os.environ | {"STAGEWATCH_DIR": str(ranks), "STAGEWATCH_JOB_ID": "1"}
        environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        children.start([sys.executable, "-c", TRAINER], environ=environ, log=directory / "rank.log")
    port = free_port()
    agent = children.start(
        [sys.executable, "-m", "stagewatch.cli", "node", "--listen", f"127.0.0.1:{port}",
         "--record-dir", str(ranks)],
        environ=os.environ | fake.environ,
        log=directory / "agent.log",
    )  # fmt: skip
    if not becomes(lambda: b"rl_rank_up" in _scrape(port) and b"gpu_power" in _scrape(port), 60):
        raise SystemExit(f"the agent does not answer: {(directory / 'agent.log').read_text()}")
    time.sleep(SETTLE_SECONDS)
    _resources(agent.pid, port)
    _viewers(agent.pid, port)
    _latency(port)
    _incident(directory, children)


def _incident(directory: Path, children: Children) -> None:
    """CPU of the two looks at the stacks of 8 ranks that an incident takes, child included."""
    (ranks := directory / "stuck").mkdir()
    log = directory / "stuck.log"
    stuck = [
        children.start(
            [sys.executable, "-c", STUCK],
            environ=os.environ | {"STAGEWATCH_DIR": str(ranks), "RANK": str(rank)},
            log=log,
        ).pid
        for rank in range(RANKS)
    ]
    if not becomes(lambda: log.read_bytes().count(b"stuck") == RANKS, 60):
        raise SystemExit(f"the ranks do not hang: {log.read_text()}")
    before, began = _cpu_of_ended_children(), time.monotonic()
    taker = StackTaker()
    for _ in range(2):
        takes = taker.take(Rank("2", "train", 0, pid) for pid in stuck)
        if problems := {take.problem for take in takes.values() if take.problem}:
            raise SystemExit(f"no stacks: {problems}")
    taker.close()
    row(f"stacks of {RANKS} ranks, twice", _cpu_of_ended_children() - before, "s CPU", 1.0)
    row("  from beginning to end", time.monotonic() - began, "s")
    _ask_the_kernel(directory, children)


def _ask_the_kernel(directory: Path, children: Children) -> None:
    """CPU of a look at what 8 ranks with 20 helper processes and 2,000 descriptors wait for."""
    log = directory / "callers.log"
    callers = [
        children.start([sys.executable, "-c", CALLER, str(helpers)], log=log).pid
        for helpers in HELPERS
    ]
    if not becomes(lambda: log.read_bytes().count(b"calls") == RANKS, 60):
        raise SystemExit(f"the ranks do not call: {log.read_text()}")
    before, began = _cpu_of_ended_children(), time.monotonic()
    waits = Waits()
    waits.ask(callers)
    answers: list[Waiting] = []
    if not becomes(lambda: answers.extend(filter(None, [waits.answer()])) or answers, 60):
        raise SystemExit("the kernel is not asked within a minute")
    waits.close()
    answered = sum(bool(waits_of(answers[0], pid)) for pid in callers)
    if answered < RANKS:
        raise SystemExit(f"waits of {answered} ranks: {answers[0].left_out}")
    cpu = _cpu_of_ended_children() - before
    row(f"waits of {RANKS} ranks with {sum(HELPERS)} helpers", cpu, "s CPU", 1.0)
    row("  from beginning to end", time.monotonic() - began, "s")


def _cpu_of_ended_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _resources(pid: int, port: int) -> None:
    """CPU over a minute without scrapes, then memory, of the agent and its children."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    before, began, parts = _cpu_seconds(family), time.monotonic(), _collectors(port)
    time.sleep(WATCH_SECONDS)
    seconds = time.monotonic() - began
    share = (_cpu_seconds(family) - before) / seconds
    row(f"CPU of {len(family)} agent processes, defaults, no scrape", share * 100, "%core", 1.0)
    for name, cpu in sorted(_collectors(port).items(), key=lambda part: parts[part[0]] - part[1]):
        row(f"  of which collector {name}", (cpu - parts[name]) / seconds * 100, "%core")
    for child in family[1:]:
        row(f"  of which child {child.pid}, since it started",
            _cpu_seconds([child]) / (time.time() - child.create_time()) * 100, "%core")  # fmt: skip
    memory = [process.memory_full_info() for process in family]
    row("memory, proportional (PSS)", sum(m.pss for m in memory) / 2**20, "MiB", 60)
    row("memory, resident (RSS, shared pages counted twice)",
        sum(m.rss for m in memory) / 2**20, "MiB", 60)  # fmt: skip


def _viewers(pid: int, port: int) -> None:
    """What browsers that look at the status page add to the CPU of the agent and its children.

    Windows with and without them follow one another in pairs, in random order; after the viewers
    have come or gone comes a time that does not count: the first look loads the templates.
    """
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    added = []
    for _ in range(VIEWER_PAIRS):
        shares = {}
        for count in random.sample((0, VIEWERS), 2):
            with _looking(port, count):
                time.sleep(REFRESH_SECONDS)
                before, began = _exact_cpu_seconds(family), time.monotonic()
                time.sleep(VIEWER_SECONDS)
                shares[count] = (_exact_cpu_seconds(family) - before) / (time.monotonic() - began)
        added.append((shares[VIEWERS] - shares[0]) * 100)
    what = f"CPU that {VIEWERS} viewers of the status page add"
    row(what, statistics.median(added), "%core", 0.5)
    print(f"{'':<52} from {min(added):.3f} to {max(added):.3f} in {VIEWER_PAIRS} pairs", flush=True)


@contextmanager
def _looking(port: int, count: int) -> Iterator[None]:
    """So many viewers meanwhile, whose browsers fetch the facts anew as the page's script does."""
    away = threading.Event()

    def view(after: float) -> None:
        away.wait(after)  # they have not all come at the same moment
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        while not away.is_set():
            connection.request("GET", "/live", headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK or not answer.read():
                raise SystemExit(f"the page answers {answer.status}")
            away.wait(REFRESH_SECONDS)
        connection.close()

    with ThreadPoolExecutor(max(1, count)) as pool:
        looking = [pool.submit(view, REFRESH_SECONDS * n / count) for n in range(count)]
        try:
            yield
        finally:
            away.set()
        for each in looking:
            each.result()


def _latency(port: int) -> None:
    page = _scrape(port)
    # Processes, so that the scrapers do not wait for each other inside one interpreter.
    with multiprocessing.get_context("spawn").Pool(SCRAPERS) as pool:
        times = [time for part in pool.map(_scraper, [port] * SCRAPERS) for time in part]
    row("series", len(re.findall(rb"^[^#]", page, re.MULTILINE)), "")
    row("exposition", len(page) / 1024, "KiB")
    row(f"scrape p50, {SCRAPERS} scrapers", percentile(times, 0.50) * 1000, "ms")
    row(f"scrape p99, {SCRAPERS} scrapers", percentile(times, 0.99) * 1000, "ms", 5.0)


def _scraper(port: int) -> list[float]:
    times = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    accept = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
    for _ in range(SCRAPES):
        began = time.perf_counter()
        connection.request("GET", "/metrics", headers=accept)
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
        time.sleep(0.05)
    connection.close()
    return times


def _scrape(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except OSError:
        return b""
    finally:
        connection.close()


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _exact_cpu_seconds(processes: list[psutil.Process]) -> float:
    """To the nanosecond, not in ticks of 10 ms: by the clocks of clock_getcpuclockid(3), whose
    numbers the kernel makes of the process's (linux/posix-timers.h)."""
    return sum(time.clock_gettime(~process.pid << 3 | 2) for process in processes)


def _collectors(port: int) -> dict[str, float]:
    """CPU seconds of each collector so far."""
    found = re.findall(
        rb'stagewatch_collector_cpu_seconds_total{collector="(\w+)"} (\S+)', _scrape(port)
    )
    return {name.decode(): float(value) for name, value in found}
