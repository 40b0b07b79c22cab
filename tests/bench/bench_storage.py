"""CPU of the storage and network collectors with 200 mounts, 5,000 sockets and 500 processes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from stagewatch.core.collector import Collector
from stagewatch.core.exposition import render
from stagewatch.host.guarded import GuardedFiles
from stagewatch.host.procfs import Procfs
from stagewatch.logs import child as log_child
from stagewatch.logs.collector import MOST_BYTES, MOST_FILES
from stagewatch.ranks import blocked_tasks, processes, work
from stagewatch.ranks import io as rank_io
from stagewatch.ranks import sockets as net
from stagewatch.ranks.blocked_tasks import BlockedTasksCollector
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.family_io import FamilyIo
from stagewatch.ranks.held_sockets import RankSockets
from stagewatch.ranks.io import RankIoCollector
from stagewatch.ranks.processes import ProcessesCollector
from stagewatch.ranks.sockets import NetCollector
from stagewatch.ranks.work import WorkCollector
from stagewatch.storage import io, nfs
from stagewatch.storage.io import IoCollector
from stagewatch.storage.nfs import NfsCollector
from tests.bench.table import row
from tests.ranks.fakes import FakeRanks, program

MOUNTS = 200
SOCKETS = 5_000
PROCESSES = 500
RANKS = 8
ROUNDS = 30
PROC = Path("/proc")
FIXTURE = Path(__file__).parent.parent / "fixtures" / "nfs" / "mountstats"
"""A rank with some children and its share of the connections."""
RANK = """
import ctypes, os, socket, sys, time
port, connections, children = map(int, sys.argv[1:])
for _ in range(children):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)  # ends with its parent
        time.sleep(3600)
held = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
print("ready", flush=True)
time.sleep(3600)
"""


SERVER = """
import resource, socket
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
server = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(server.getsockname()[1], flush=True)
held = []
while True:
    held.append(server.accept()[0])
"""


def main() -> None:
    """Print the share of a core that each collector takes at its default interval."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _nfs(directory)
        _logs(directory)
        ranks = stack.enter_context(_busy_node())
        look = ProcessFamilies(ranks, Procfs(), fresh_for=0.0, cpu_clock=lambda: 0.0)
        count = len(look.look().processes)
        cost = _cpu(look.look)
        row(f"one look at {count} processes, shared, every 4 s", cost / 4 * 100, "%core", 0.5)
        still = ProcessFamilies(ranks, Procfs(), fresh_for=1e9)
        files = GuardedFiles()
        stack.callback(files.close)
        sockets = RankSockets(still, PROC, files)
        stack.callback(sockets.close)
        with_statistics = _measure("net", NetCollector(sockets), SPECS["net"], 2.0)
        peer = _cpu(lambda: psutil.net_connections("tcp"), 3)
        row("  beside psutil.net_connections, without statistics", peer / with_statistics, "times")
        counters = FamilyIo(still, files, fresh_for=0.0)
        _measure("rank_io", RankIoCollector(counters), SPECS["rank_io"], 0.2)
        last = FamilyIo(still, files, fresh_for=1e9)
        _measure("work", WorkCollector(ranks, last, sockets), SPECS["work"], 0.1)
        _measure(
            "blocked_tasks", BlockedTasksCollector(still, Procfs()), SPECS["blocked_tasks"], 0.1
        )
        _measure("processes", ProcessesCollector(still, PROC), SPECS["processes"], 0.1)
        _measure("io", IoCollector(PROC, Path("/sys")), SPECS["io"], 0.1)


SPECS = {
    module.SPEC.name: module.SPEC.interval
    for module in (blocked_tasks, io, net, nfs, processes, rank_io, work)
}


def _cpu(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """CPU seconds of one call."""
    call()
    began = time.process_time()
    for _ in range(rounds):
        call()
    return (time.process_time() - began) / rounds


def _measure(name: str, collector: Collector, interval: float, budget: float) -> float:
    """CPU seconds of one collection, rendering included."""
    series = sum(map(len, collector.collect().families.values()))
    cost = _cpu(lambda: render(collector.collect()))
    collector.close()
    row(f"{name}, {series} series, every {interval:g} s", cost / interval * 100, "%core", budget)
    return cost


def _nfs(directory: Path) -> None:
    """Mounts of many servers in one file."""
    process = directory / "1"
    process.mkdir()
    (directory / "self").symlink_to("1")
    blocks = [block for block in FIXTURE.read_text().split("device ") if " fstype nfs" in block]
    text = "".join(
        f"device host{number}:/export/{number} mounted on /mnt/{number} with fstype nfs4 "
        + block.partition(" with fstype ")[2].partition(" ")[2]
        for number in range(MOUNTS)
        for block in [blocks[number % len(blocks)]]
    )
    (process / "mountstats").write_text(text)
    (process / "mountinfo").write_text(
        "".join(
            f"{number} 1 0:{number} / /mnt/{number} rw - nfs4 host{number}:/export/{number} "
            f"rw,addr=10.0.{number // 250}.{number % 250}\n"
            for number in range(MOUNTS)
        )
    )
    collector = NfsCollector(directory / "self" / "mountstats")
    _measure(f"nfs, {MOUNTS} mounts", collector, SPECS["nfs"], 1.0)


def _logs(directory: Path) -> None:
    """One reading after a burst, and one of a log that grows as usual."""
    log = directory / "train.log"
    log.touch()
    arguments = {"pattern": str(log), "patterns": [], "max_files": MOST_FILES}
    arguments["max_bytes"] = MOST_BYTES
    kept: list[Any] = [None]
    report = SimpleNamespace(phase=lambda name: None, keep=lambda left: kept.__setitem__(0, left))
    read = partial(log_child.run, arguments)
    read(None, report)  # type: ignore[arg-type]
    line = b"2024-11-24T14:30:00Z INFO step 10: loss 0.123, 1250 samples/s, status ok\n"
    for what, size in (("after 1 GiB at once", 1 << 30), ("after 1 MiB", 1 << 20)):
        with log.open("ab") as file:
            for _ in range(size // (len(line) * 4096)):
                file.write(line * 4096)
        began = time.process_time()
        read(kept[0], report)  # type: ignore[arg-type]
        row(f"logs, a reading {what}", (time.process_time() - began) * 1000, "ms", 150)


@contextmanager
def _busy_node() -> Iterator[FakeRanks]:
    """Ranks with children, and connections whose other end is no rank's."""
    ranks = FakeRanks()
    children = (PROCESSES - RANKS) // RANKS
    with ExitStack() as stack:
        server = stack.enter_context(program(SERVER))
        port = server.hear()
        connections = str(SOCKETS // 2 // RANKS)
        started = [
            stack.enter_context(program(RANK, port, connections, str(children)))
            for _ in range(RANKS)
        ]
        for number, rank in enumerate(started):
            rank.hear()
            ranks.add(rank.pid, number)
        yield ranks
