"""A node agent as installed, beside users and clients who take whatever they can get.

Eight ranks train.  The agent has the user, capabilities, limits and system calls of its unit.  Then
users keep as many and as full stage records as they may, or renew them so that ever new jobs end,
or make files without end; and clients read or ask as slowly as they may.  `--seconds N` for another
time each, `--only WORD` for those whose title has it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from stagewatch.core.processes import Children
from tests import full_records
from tests.as_installed import as_user, need_users, start, systemd
from tests.bench.table import percentile, row
from tests.full_records import NEIGHBOUR, neighbour
from tests.node_agent import TRAINER, NodeAgent
from tests.running import clean_environ
from tests.waiting import wait_for

RANKS = 8
JOB = 'job_id="540"'
AGENT_UID = 60_050

CLIENTS = """
import random, socket, sys, threading, time
port, count, most = map(int, sys.argv[1:4])
path, whole = sys.argv[4], sys.argv[5] == "True"
numbers = iter(range(most))
def ask():
    for _ in numbers:
        with socket.socket() as link:
            try:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                link.bind((f"127.0.0.{random.randrange(2, 42)}", 0))
                link.settimeout(20)
                link.connect(("127.0.0.1", port))
                link.sendall(f"GET {path} HTTP/1.1\\r\\nHost: x".encode())
                if whole:
                    link.sendall(b"\\r\\n\\r\\n")
                while link.recv(512) if whole else link.send(b"x") and random.random() < 0.7:
                    time.sleep(random.random())
            except OSError:
                time.sleep(0.1)
for _ in range(count):
    threading.Thread(target=ask).start()
"""
"""Clients of 40 addresses, who read slowly, or whose requests never end."""
FILES = """
import sys
for number in range(int(sys.argv[2])):
    open(f"{sys.argv[1]}/{900000 + number}-{number:08x}.rank", "wb").write(b"x" * 64)
"""
Attack = Callable[[NodeAgent, Children, Path], None]


def _records(*records: int, users: int = 1) -> Attack:
    """How many of each user, and after how many seconds they are renewed."""

    def attack(agent: NodeAgent, children: Children, log: Path) -> None:
        for uid in range(NEIGHBOUR, NEIGHBOUR + users):
            full_records.NEIGHBOUR = uid
            neighbour(children, agent.ranks, log.with_name(f"log-{uid}"), *records)

    return attack


def _clients(count: int, most: int, path: str, *, descriptors: int = 0) -> Attack:
    """So many at a time and in all; those who ask for `/events` send whole requests."""

    def attack(agent: NodeAgent, children: Children, log: Path) -> None:
        if path == "/events":
            neighbour(children, agent.ranks, log, 64)
        if descriptors:
            _prlimit(agent, f"--nofile={descriptors}:")
        _user(agent, children, CLIENTS, agent.port, count, most, path, path == "/events")

    return attack


def _files(count: int) -> Attack:
    def attack(agent: NodeAgent, children: Children, log: Path) -> None:
        _user(agent, children, FILES, agent.ranks, count).wait()

    return attack


ATTACKS: dict[str, Attack] = {
    "256 full records": _records(256),
    "8 renewed every 14 s": _records(8, 14),
    "256 full records of each of three users": _records(256, users=3),
    "64 slow readers of 16 MB": _clients(64, 1 << 30, "/events"),
    "300 slow clients, 10,000 connections": _clients(300, 10_000, "/metrics"),
    "the same with 64 descriptors, 3,000": _clients(300, 3_000, "/metrics", descriptors=64),
    "20,000 files": _files(20_000),
    "100,000 files": _files(100_000),
}


def main(arguments: Sequence[str] = ()) -> None:
    """Run one agent for each, and print what its page and its processes take."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=neighbour")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args(arguments)
    need_users()
    for title, attack in ATTACKS.items():
        if given.only in title:
            print(f"\n{title}")
            with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as name:
                _measure(Path(name), given.seconds, attack)


def _measure(directory: Path, seconds: float, attack: Attack) -> None:
    agent = NodeAgent(
        directory,
        *("--collector.kmsg.state-file", str(directory / "kmsg.json")),
        *("--collector.incidents.dir", str(directory / "incidents")),
    )
    with Children() as children:
        for rank in range(RANKS):
            children.start(
                [sys.executable, "-c", TRAINER, str(rank)],
                environ=os.environ | {"STAGEWATCH_DIR": str(agent.ranks)},
                log=directory / "ranks.log",
            )
        start(systemd(), agent, children, AGENT_UID)
        wait_for(lambda: agent.get("/metrics")[1].count("rl_rank_up{" + JOB) == RANKS, "ranks")
        time.sleep(5)
        alone = agent.get("/metrics")[1].count(JOB)
        attack(agent, children, directory / "log")
        time.sleep(5)
        _watch(agent, alone, seconds)


def _user(
    agent: NodeAgent, children: Children, code: str, *given: object
) -> subprocess.Popen[bytes]:
    """Start a program of another user."""
    command = [sys.executable, "-c", code, *map(str, given)]
    return children.start(
        as_user(agent.directory / "user", NEIGHBOUR, *command),
        environ=clean_environ({"HOME": "/"}),
        log=agent.directory / "user.log",
    )


def _prlimit(agent: NodeAgent, limit: str) -> None:
    """As its own user, since root in a container may not."""
    whose = [f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups"]
    command = ["setpriv", *whose, "prlimit", f"--pid={agent.process.pid}", limit]
    subprocess.run(command, check=True)


def _watch(agent: NodeAgent, alone: int, seconds: float) -> None:
    took, size, lines, honest, memory, refused = [], 0, 0, alone, 0.0, 0
    process = psutil.Process(agent.process.pid)
    before, began = process.cpu_times(), time.monotonic()
    while time.monotonic() < began + seconds:
        asked = time.monotonic()
        status, page = agent.get("/metrics")
        if status == 200:
            took.append(time.monotonic() - asked)
            size, lines = max(size, len(page.encode())), max(lines, page.count("\n"))
            honest = min(honest, page.count(JOB))
        refused += status != 200
        everybody = [process, *process.children(recursive=True)]
        memory = max(memory, sum(one.memory_full_info().uss for one in everybody) / 2**20)
        time.sleep(0.5)
    cpu, ended = process.cpu_times(), time.monotonic()
    row("page, at most", size / 1e6, "MB", 4)
    row("lines, at most", lines, "")
    row("series of the honest ranks, alone", alone, "")
    row("series of the honest ranks, at least", honest, "")
    row("memory of the agent and its children, at most", memory, "MiB", 256)
    row("scrapes answered", len(took), "")
    row("scrapes refused", refused, "")
    row("a scrape, median", percentile(took, 0.5) * 1000, "ms")
    row("a scrape, p99", percentile(took, 0.99) * 1000, "ms", 50)
    used = cpu.user + cpu.system - before.user - before.system
    row("CPU", used / (ended - began) * 100, "%core")
