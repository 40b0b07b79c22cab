"""What agents as installed see of a server that ranks of two nodes ask, beside what root sees.

A node has processes, a network and users of its own: nobody sees the other end of a connection
between them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from stagewatch.core.processes import Children
from stagewatch.demo.stack import free_port
from tests.as_installed import as_user, need_users, start, systemd
from tests.deploy.engine import ROOT, need
from tests.node_agent import COMMAND, NodeAgent
from tests.running import clean_environ
from tests.waiting import wait_for

SERVER = """
import selectors, socket
server, held = socket.create_server(("", 0)), selectors.DefaultSelector()
held.register(server, selectors.EVENT_READ)
print(server.getsockname()[1], flush=True)
while True:
    for key, _ in held.select():
        if key.fileobj is server:
            held.register(server.accept()[0], selectors.EVENT_READ)
        else:
            key.fileobj.recv(64)
"""
"""It takes every request, and answers none."""
ASKS = """
import socket, sys, time, stagewatch
server = socket.create_connection((sys.argv[2], int(sys.argv[3])))
stagewatch.init(job_id=sys.argv[1], rank=int(sys.argv[4]), world_size=2)
with stagewatch.stage("rollout"):
    for step in range(100):
        stagewatch.heartbeat(step=step)
        time.sleep(0.005)
    server.sendall(b"?")
    server.recv(64)
"""
ADDRESSES = ("10.79.0.1", "10.79.0.2")
FIRST_UID = 60_040
"""Of users that no machine has."""
WAITS, ENDS = "rl_rank_waits_for", "rl_rank_connection_info"
READ = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"

pytestmark = [pytest.mark.xdist_group("as_installed"), pytest.mark.timeout(600)]


@dataclass
class Node:
    """A node, made of namespaces that end with this process."""

    directory: Path
    pid: int
    """Its first process."""
    children: Children
    agents: dict[str, InNode] = field(default_factory=dict)

    @property
    def enter(self) -> tuple[str, ...]:
        """What to put before a command for it to run there."""
        spaces = ("--net", "--pid", "--mount")
        return ("nsenter", f"--target={self.pid}", *spaces, f"--wd={ROOT}", "--")

    def run(self, *command: str) -> None:
        """Run a command there."""
        subprocess.run([*self.enter, *command], check=True, capture_output=True)

    def told(self, agent: str, job: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """What an agent tells of the waits of a job."""
        return {
            (name, pairs)
            for name, pairs in self.agents[agent].series()
            if name in (WAITS, ENDS) and dict(pairs)["job_id"] == job
        }


class InNode(NodeAgent):
    """An agent that answers on its node alone."""

    def __init__(self, node: Node, name: str) -> None:
        (directory := node.directory / name).mkdir()
        ranks = ("--record-dir", str(node.directory / "ranks"))
        super().__init__(directory, *ranks, "--collector.incidents.dir", str(directory / "seen"))
        self._node = node

    def start(self, port: int | None = None) -> None:
        """As root."""
        self.port = port or free_port()
        command = [*COMMAND, "node", "--listen", f"127.0.0.1:{self.port}", *self.arguments]
        self.process = self._node.children.start(
            [*self._node.enter, *command], log=self.log, environ=self.environ
        )
        wait_for(self.healthy, "the agent answers")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 while nothing listens."""
        read = [sys.executable, "-c", READ, f"http://127.0.0.1:{self.port}{path}"]
        done = subprocess.run([*self._node.enter, *read], capture_output=True, check=False)
        return (0, "") if done.returncode else (200, done.stdout.decode())


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Node, Node]]:
    """Joined by a link."""
    need_users()
    need("nsenter", "ip")
    with ExitStack() as stack:
        both = [_node(stack) for _ in ADDRESSES]
        link = f"ip link add name wire type veth peer name wire netns {both[1].pid}"
        # Not by its process namespace, in which the other node has no number.
        subprocess.run(["nsenter", f"--net=/proc/{both[0].pid}/ns/net", *link.split()], check=True)
        for node, address in zip(both, ADDRESSES, strict=True):
            node.run("ip", "link", "set", "lo", "up")
            node.run("ip", "address", "add", f"{address}/24", "dev", "wire")
            node.run("ip", "link", "set", "wire", "up")
        yield both[0], both[1]


def _node(stack: ExitStack) -> Node:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sw-")))
    children = stack.enter_context(Children())
    for path in (directory, directory / "ranks"):
        path.mkdir(exist_ok=True)
        path.chmod(0o1777)
    apart = ("--net", "--pid", "--mount-proc", "--fork", "--kill-child")
    holder = children.start(["unshare", *apart, "sleep", "infinity"])
    first = psutil.Process(holder.pid)

    def begun() -> int:
        assert holder.poll() is None, "no namespaces"
        named = [one.pid for one in first.children() if one.name() == "sleep"]
        return named[0] if named else 0

    return Node(directory, wait_for(begun, "the first process of a node"), children)


def test_a_server_of_another_user_is_told_to_clients_of_both_nodes_as_to_root(
    nodes: tuple[Node, Node],
) -> None:
    job, (near, far) = f"asks-{os.getpid()}", nodes
    log = far.directory / "server.log"
    serves = as_user(far.directory / "serves", FIRST_UID + 2, sys.executable, "-c", SERVER)
    far.children.start([*far.enter, *serves], environ=clean_environ({"HOME": "/"}), log=log)
    wait_for(lambda: log.exists() and log.read_text().endswith("\n"), "a port to ask at")
    port = log.read_text().strip()
    for number, node in enumerate(nodes):
        given = (sys.executable, "-c", ASKS, job, ADDRESSES[1], port, str(number))
        asks = as_user(node.directory / "asks", FIRST_UID + number, *given)
        environ = clean_environ({"HOME": "/", "STAGEWATCH_DIR": str(node.directory / "ranks")})
        node.children.start([*node.enter, *asks], environ=environ, log=node.directory / "asks.log")
        node.agents = {name: InNode(node, name) for name in ("root", "installed")}
        node.agents["root"].start()
        installed = node.agents["installed"]
        start(systemd(), installed, node.children, FIRST_UID + 10 + number, *node.enter)

    def agree() -> bool:
        names = [{name for name, _ in node.told("root", job)} for node in nodes]
        same = [node.told("root", job) == node.told("installed", job) for node in nodes]
        return names == [{WAITS, ENDS}, {WAITS, ENDS}] and all(same)

    try:
        wait_for(agree, "the same waits", limit=120)
    except AssertionError:
        told = [
            (name, sorted(map(str, node.told(name, job)))) for node in nodes for name in node.agents
        ]
        pytest.fail(f"they differ: {told}")
    (asked,) = (dict(pairs) for name, pairs in near.told("installed", job) if name == WAITS)
    assert asked["address"].startswith(f"{ADDRESSES[1]}:{port} from {ADDRESSES[0]}:")
    ends = [dict(pairs) for name, pairs in far.told("installed", job) if name == ENDS]
    there = [one for one in ends if one["address"] == asked["address"]]
    assert sorted(one.get("for_rank", "") for one in there) == ["", "1"], "the server, a client"
    assert all("(pid " in one["through"] for one in there)
