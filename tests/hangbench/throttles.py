"""What makes a rank slow by the machine's own means, and the work that shows it.

A limit of the CPU's time, a process beside it on its core, a slow loader of data, a network that
loses packets or is narrow: further actions of the vocabulary in `actions.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stagewatch.core.processes import Children, die_with_parent
from tests.hangbench.actions import Rank, action
from tests.waiting import wait_for

CGROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_MICROSECONDS = 100_000
"""Kubernetes' cpu-cfs-quota-period."""
_MEGABYTE = 1 << 20
_PIECE = 8
"""Megabytes copied at a time, of 64 that do not fit in the caches of a core."""
_LOADER = """
import sys, time
for line in sys.stdin:
    time.sleep(float(line))
    sys.stdout.buffer.write(bytes(1 << 18))
    sys.stdout.buffer.flush()
"""
_SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
for line in client.makefile():
    client.sendall(bytes(int(float(line) * (1 << 20))))
"""
_BUSY = "while True: pass"
_NETWORK = "ip link set lo mtu 1500 up && echo up && exec sleep infinity"


@action
def burn(me: Rank, seconds: float) -> None:
    """So much of a CPU's time, which takes longer where the CPU is shared or limited."""
    import numpy as np

    own, out = np.ones((100, 100)), np.empty((100, 100))
    end = time.thread_time() + me.duration(seconds, "compute")
    while time.thread_time() < end:
        np.dot(own, own, out=out)


@action
def copy(me: Rank, megabytes: float) -> None:
    """So many megabytes from memory to memory."""
    import numpy as np

    source, target = me.kept.setdefault(
        "memory", tuple(np.ones((8, _PIECE * _MEGABYTE), dtype=np.uint8) for _ in range(2))
    )
    for piece in range(round(me.duration(megabytes, "compute") / _PIECE)):
        np.copyto(target[piece % 8], source[piece % 8])


@action
def batch(me: Rank, seconds: float) -> None:
    """The next batch of a loader, a process that takes so long for each and is one ahead."""
    loader = me.kept.get("loader")
    if loader is None:
        loader = me.kept["loader"] = _child(_LOADER, stdin=subprocess.PIPE)
        _ask(loader, me.duration(seconds, "io"))
    loader.stdout.read(1 << 18)
    _ask(loader, me.duration(seconds, "io"))


@action
def fetch(me: Rank, megabytes: float) -> None:
    """So many megabytes over TCP from a server of this rank's own."""
    server = _server(me)
    server.sendall(f"{megabytes}\n".encode())
    left = int(megabytes * _MEGABYTE)
    while left:
        left -= len(server.recv(min(left, _MEGABYTE)))


@action
def quota(me: Rank, cores: float) -> None:
    """From now on, at most so many cores: CFS bandwidth of a cgroup of its own."""
    group = CGROUPS / f"hangbench-{me.shape.name}-{me.rank}"
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
    (group / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD_MICROSECONDS)))
    (group / "cgroup.procs").write_text(str(os.getpid()))


@action
def contend(me: Rank, nice: int = 0, own: int = 0) -> None:
    """From now on, a busy process on this rank's core, each of both with its niceness."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    command = ["nice", "-n", str(nice), sys.executable, "-c", _BUSY]
    me.kept["busy"] = subprocess.Popen(command, preexec_fn=die_with_parent)
    os.nice(own)


@action
def loss(me: Rank, percent: float) -> None:
    """From now on, so many of the packets that this rank fetches are lost."""
    port = str(_server(me).getpeername()[1])
    _run("iptables", "-F", "INPUT")
    _run(
        *("iptables", "-A", "INPUT", "-i", "lo", "-p", "tcp", "--sport", port),
        *("-m", "statistic", "--mode", "random", "--probability", str(percent / 100)),
        *("-j", "DROP"),
    )


@action
def link(me: Rank, megabits: float) -> None:
    """From now on, the job's network as a whole carries no more a second: a token bucket."""
    _run(
        *("tc", "qdisc", "replace", "dev", "lo", "root", "tbf"),
        *("rate", f"{megabits}mbit", "burst", "256kb", "latency", "400ms"),
    )


def missing(uses: Callable[..., bool]) -> str:
    """What this machine lacks to play a shape, empty if nothing; `uses` knows its actions."""
    if uses("quota") and not os.access(CGROUPS / "cpu.cfs_quota_us", os.W_OK):
        return f"needs CFS bandwidth in a writable {CGROUPS}"
    if uses("loss", "link"):
        tools = ("unshare", "nsenter", "ip", "iptables" if uses("loss") else "tc")
        lacking = [tool for tool in tools if shutil.which(tool) is None]
        if lacking or os.geteuid() != 0:
            return f"needs root and {', '.join(tools)}"
    return ""


def network(children: Children, log: Path) -> subprocess.Popen[bytes]:
    """A network of a job's own, which lasts as long as this process."""
    holder = children.start(["unshare", "--net", "sh", "-c", _NETWORK], log=log)
    wait_for(lambda: log.exists() and "up" in log.read_text(), "a network namespace")
    return holder


def within(holder: subprocess.Popen[bytes]) -> list[str]:
    """What runs a command in that network."""
    return ["env", "GLOO_SOCKET_IFNAME=lo", "nsenter", f"--net=/proc/{holder.pid}/ns/net"]


def clean(job: str) -> None:
    """Remove what actions have left of a job whose processes have ended."""
    for group in CGROUPS.glob(f"hangbench-{job}-*"):
        with contextlib.suppress(OSError):
            group.rmdir()


def _server(me: Rank) -> socket.socket:
    connection: socket.socket | None = me.kept.get("server")
    if connection is None:
        port = int(_child(_SERVER).stdout.readline())
        connection = me.kept["server"] = socket.create_connection(("127.0.0.1", port))
    return connection


def _child(code: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, preexec_fn=die_with_parent
    )


def _ask(loader: subprocess.Popen[bytes], seconds: float) -> None:
    assert loader.stdin is not None
    loader.stdin.write(f"{seconds:.6f}\n".encode())
    loader.stdin.flush()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
