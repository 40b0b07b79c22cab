"""What the agent sees as installed of other users' ranks, beside what root sees.

Every other test runs as root, or looks at processes of its own user.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path

import psutil
import pytest

from stagewatch.core.privileges import capabilities
from stagewatch.core.processes import Children
from stagewatch.ranks.servers import LOOK_SECONDS
from tests import as_installed
from tests.incidents.test_libraries import dump, entry
from tests.nccl.made import made
from tests.node_agent import NodeAgent, Series
from tests.running import clean_environ
from tests.waiting import wait_for

RECORDED = """
import json, os, socket, subprocess, sys, time, stagewatch
os.umask(0o022)
done = {"coll": "AllReduce", "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 9}
told = {"header": {"id": "0x1", "rank": 0, "n_ranks": 2}, "metadata": {"pid": os.getpid()}}
inspector = open(f"{sys.argv[3]}/node-pid{os.getpid()}.log", "w")
peer = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
child = subprocess.Popen(["setpriv", "--pdeathsig=KILL", "sleep", "600"])
stagewatch.init(job_id=sys.argv[1], rank=0, world_size=2)
step = 0
while True:
    step += 1
    print(json.dumps(told | {"coll_perf": done | {"coll_sn": step}}), file=inspector, flush=True)
    with stagewatch.stage("train", step=step):
        open("/dev/null", "wb", buffering=0).write(bytes(1 << 20))
        time.sleep(0.05)
"""
UNRECORDED = """
import os, socket, sys, time
os.umask(0o077)
open(f"{sys.argv[2]}/node-pid{os.getpid()}.log", "w").close()
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    open("/dev/null", "wb", buffering=0).write(bytes(1 << 20))
    time.sleep(0.05)
"""
HANGS = """
import fcntl, http.server, os, pathlib, socket, sys, threading, time, stagewatch

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.send_response(200)
        self.end_headers()
        names = '["dump_nccl_trace_json"]'
        self.wfile.write((names if self.path == "/handler/" else os.environ["DUMP"]).encode())
    do_GET = do_POST = answer

http.server.HTTPServer.address_family = socket.AF_INET6
server = http.server.HTTPServer(("::", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
plugin = open(os.environ["STAGEWATCH_DIR"] + f"/{os.getpid()}-00000001.nccl", "xb", buffering=0)
plugin.write(pathlib.Path(sys.argv[3]).read_bytes())
fcntl.lockf(plugin, fcntl.LOCK_EX)
peer = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
stagewatch.init(job_id=sys.argv[1], rank=0, world_size=2)
with stagewatch.stage("train"):
    for step in range(100):
        stagewatch.heartbeat(step=step)
        time.sleep(0.005)
    peer.recv(1)
"""
SERVES = """
import signal, socket
closes, refuses = [], []
signal.signal(signal.SIGUSR1, lambda *_: closes.append(True))
signal.signal(signal.SIGUSR2, lambda *_: refuses.append(True))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
accepted, _ = server.accept()
while asked := accepted.recv(64):
    if not closes:
        accepted.sendall(b"no" if refuses else asked)
    else:
        accepted.close()
        accepted, _ = server.accept()
"""
"""Answers; after a signal it closes every connection instead, after another it refuses."""
ASKS = """
import socket, sys, time, stagewatch
at = ("127.0.0.1", int(sys.argv[2]))
server = socket.create_connection(at)
stagewatch.init(job_id=sys.argv[1], rank=0, world_size=1)
step = 0
with stagewatch.stage("rollout"):
    while True:
        try:
            server.sendall(b"?")
            assert (answer := server.recv(64))
        except (OSError, AssertionError):
            server.close()
            time.sleep(1)
            server = socket.socket()
            server.connect_ex(at)
        else:
            if answer == b"no":
                time.sleep(1)
                continue
            stagewatch.heartbeat(step=step)
            step += 1
            time.sleep(0.05)
"""
"""A rank that asks its server in vain once that has ended, or answers no more."""
PEER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0), backlog=8)
print(server.getsockname()[1], flush=True)
accepted = [server.accept() for _ in range(3)]
time.sleep(3600)
"""
"""The far end of all their connections: asleep, so that it is the same whoever looks and when."""
FIRST_UID = 60_000
"""Of users that no machine has."""


@dataclass
class Node:
    """Ranks of two users, and an agent of root's that sees all there is."""

    directory: Path
    jobs: tuple[str, str, str]
    root: NodeAgent
    children: Children

    def of_jobs(self, agent: NodeAgent) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """Names and labels of what an agent tells of the jobs; what moves by itself left out."""
        return {
            (name, pairs)
            for (name, pairs) in agent.series()
            if dict(pairs).get("job_id") in self.jobs and name not in MOVING
        }


MOVING = {
    "rl_rank_at_work",
    "rl_rank_wait_class",
    "rl_rank_still_seconds",
    "rl_rank_storage_wait_seconds",
    "rl_stage_failures_total",
}
"""Series that come and go with what a rank does at the moment, whoever looks."""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A directory that any user may write to, three ranks, and root's agent."""
    as_installed.need_users()
    number = os.getpid()
    jobs = (f"recorded-{number}", str(number + 7_000_000), f"hangs-{number}")
    with (
        tempfile.TemporaryDirectory(prefix="sw-", ignore_cleanup_errors=True) as name,
        tempfile.TemporaryDirectory(prefix="sw-", dir="/dev/shm") as inspector,
        Children() as children,
    ):
        directory = Path(name)
        for path in (name, inspector):
            Path(path).chmod(0o1777)
        (directory / "nccl").symlink_to(inspector)
        (directory / "root").mkdir()
        root = NodeAgent(directory / "root", *arguments(directory / "root"))
        root.ranks.chmod(0o1777)
        (directory / "plugin").write_bytes(made())
        children.start([sys.executable, "-c", PEER], log=directory / "peer.log")
        wait_for(lambda: (directory / "peer.log").read_text().endswith("\n"), "a port to talk to")
        port = (directory / "peer.log").read_text().strip()
        for uid, code, given, more in (
            (FIRST_UID, RECORDED, (jobs[0], port, inspector), {"STAGEWATCH_DIR": str(root.ranks)}),
            (FIRST_UID + 1, UNRECORDED, (port, inspector),
             {"RANK": "1", "WORLD_SIZE": "2", "SLURM_JOB_ID": jobs[1]}),
            (FIRST_UID, HANGS, (jobs[2], port, str(directory / "plugin")),
             {"STAGEWATCH_DIR": str(root.ranks), "NCCL_RAS_ENABLE": "0",
              "DUMP": json.dumps(dump(entry(812, "started")))}),
        ):  # fmt: skip
            children.start(
                as_installed.as_user(
                    directory / f"rank-{uid}", uid, sys.executable, "-c", code, *given
                ),
                environ=clean_environ({"HOME": "/", **more}),
                log=directory / "ranks.log",
            )
        root.start()
        try:
            yield Node(directory, jobs, root, children)
        finally:
            root.stop()


def arguments(directory: Path) -> list[str]:
    """Of both agents."""
    return [
        *("--collector.kmsg.state-file", str(directory / "kmsg.json")),
        *("--collector.incidents.dir", str(directory / "incidents")),
        *("--collector.nccl-inspector.dir", str((directory.parent / "nccl").resolve())),
    ]


@dataclass
class Installed:
    """An agent as installed."""

    how: as_installed.Installation
    agent: NodeAgent

    children: Children
    asks: str
    """The job of a rank of another user."""
    server: subprocess.Popen[bytes]
    """Whom it asks."""
    in_vain: dict[signal.Signals, tuple[str, subprocess.Popen[bytes]]]
    """Likewise, by the signal after which the server answers no more as it should."""
    since: float = field(default_factory=time.time)
    """When its agent began to answer, as Unix time."""

    @property
    def keeper(self) -> psutil.Process:
        """The process that keeps the privileges: a child of the agent's, or a unit of its own."""

        socket = str(self.agent.directory / "keeper")

        def found() -> psutil.Process | None:
            told = {
                one.pid: (one, one.info["ppid"], one.info["cmdline"] or ())
                for one in psutil.process_iter(["ppid", "cmdline"])
            }
            # What it forks has its command line, but not its parent.
            parents = {pid for pid, (*_, command) in told.items() if socket in command}
            parents.add(self.agent.process.pid)
            name = "stagewatch.core.privileges.keeper_child"
            keepers = [
                one
                for one, parent, command in told.values()
                if parent in parents and name in command
            ]
            return keepers[0] if keepers else None

        return wait_for(found, "a keeper of privileges")


def test_without_capabilities_the_agent_tells_what_it_cannot_see(
    node: Node, children: Children
) -> None:
    how = replace(as_installed.systemd(), keeper=())
    (directory := node.directory / "blind").mkdir()
    blind = NodeAgent(directory, *arguments(directory), "--record-dir", str(node.root.ranks))
    as_installed.start(how, blind, children, FIRST_UID + 20)
    wait_for(lambda: blind.value("stagewatch_processes_denied"), "processes that are denied")
    for collector in ("rank_io", "net", "work"):
        wait_for(
            lambda name=collector: blind.value("stagewatch_collector_success", collector=name) == 0,
            f"{collector} fails",
        )
    page = blind.get("/")[1]
    assert "processes of other users cannot be read: that takes CAP_SYS_PTRACE and" in page
    assert blind.value("rl_rank_step", job_id=node.jobs[0]), "what can be seen is shown"


@pytest.fixture(scope="module", params=as_installed.INSTALLATIONS)
def installed(request: pytest.FixtureRequest, node: Node) -> Iterator[Installed]:
    """By each of the three ways."""
    how = as_installed.INSTALLATIONS[request.param]()
    directory = node.directory / how.name
    directory.mkdir()
    agent = NodeAgent(directory, *arguments(directory), "--record-dir", str(node.root.ranks))
    (directory / "incidents").mkdir()
    (directory / "incidents").chmod(0o1777)
    with Children() as children:
        jobs = [f"{asks}-{how.name}-{os.getpid()}" for asks in ("asks", "closed", "refused")]
        asked, *in_vain = [(job, _with_server(node, children, directory, job)) for job in jobs]
        as_installed.start(
            how, agent, children, FIRST_UID + 10 + list(as_installed.INSTALLATIONS).index(how.name)
        )
        by_signal = dict(zip((signal.SIGUSR1, signal.SIGUSR2), in_vain, strict=True))
        yield Installed(how, agent, children, *asked, by_signal)


def _with_server(
    node: Node, children: Children, directory: Path, job: str
) -> subprocess.Popen[bytes]:
    """A rank, and the server of yet another user that it asks."""
    directory = directory / job
    directory.mkdir()
    log = directory / "server.log"
    command = as_installed.as_user(
        directory / "serves", FIRST_UID + 2, sys.executable, "-c", SERVES
    )
    server = children.start(command, environ=clean_environ({"HOME": "/"}), log=log)
    wait_for(lambda: log.read_text().endswith("\n"), "a port to ask at")
    given = (sys.executable, "-c", ASKS, job, log.read_text().strip())
    environ = clean_environ({"HOME": "/", "STAGEWATCH_DIR": str(node.root.ranks)})
    children.start(
        as_installed.as_user(directory / "asks", FIRST_UID, *given),
        environ=environ,
        log=directory / "asks.log",
    )
    return server


pytestmark = [pytest.mark.xdist_group("as_installed"), pytest.mark.timeout(600)]


def test_the_agent_sees_of_other_users_what_root_sees(node: Node, installed: Installed) -> None:
    telling = {
        (name, job)
        for name, job in (
            ("rl_rank_io_bytes_total", node.jobs[0]),
            ("rl_rank_io_bytes_total", node.jobs[1]),  # found by its environment
            ("rl_rank_tcp_connections", node.jobs[0]),
            ("rl_rank_tcp_connections", node.jobs[1]),
            ("rl_rank_stack_frame_info", node.jobs[2]),
            ("rl_rank_waits_for", node.jobs[2]),
            ("rl_rank_nccl_operation", node.jobs[2]),
            ("rl_rank_nccl_operation_seconds", node.jobs[0]),
        )
    }
    seen: list[set[tuple[str, frozenset[tuple[str, str]]]]] = [set(), set()]
    node.root.stop()  # some series take five minutes: both agents are to be young
    node.root.start()

    def agree() -> bool:
        seen[:] = node.of_jobs(node.root), node.of_jobs(installed.agent)
        here = {(name, dict(pairs)["job_id"]) for name, pairs in seen[1]}
        return seen[0] == seen[1] and telling <= here

    try:
        wait_for(agree, "the same series", limit=90, pause=1.0)
    except AssertionError:
        lacking, more = (
            sorted(map(str, one))[:20] for one in (seen[0] - seen[1], seen[1] - seen[0])
        )
        pytest.fail(f"installed by {installed.how.name} it lacks {lacking} and has {more} instead")


def test_the_page_names_the_rank_that_roots_page_names(node: Node, installed: Installed) -> None:
    """With the process that it waits for and the line, which take privileges to see."""

    def told(agent: NodeAgent) -> str:
        page = re.sub(r"[\d.]+ (s|min|h)\b", "TIME", agent.get("/live")[1])
        banners = re.findall(
            r'<section class="banner bad".*?<p class="detail">(.*?)</p>', page, re.S
        )
        return next((unescape(one) for one in banners if node.jobs[2] in one), "")

    def alike() -> bool:
        ours = told(installed.agent)
        return "<string>:" in ours and ours == told(node.root)

    try:
        wait_for(alike, "the same verdict, with the line", limit=150, pause=1.0)
    except AssertionError:
        pytest.fail(f"{installed.how.name}: {told(installed.agent)!r}, not {told(node.root)!r}")


@pytest.fixture(scope="module")
def asked_in_vain(installed: Installed) -> Installed:
    """One of its servers ends, one closes every connection and one refuses, all at once."""
    agent = installed.agent
    for job in (installed.asks, *(job for job, _ in installed.in_vain.values())):
        wait_for(lambda job=job: agent.value("rl_rank_tcp_connections", job_id=job), "a connection")
    soon = installed.since + 3 * LOOK_SECONDS
    name = "stagewatch_collector_last_success_timestamp_seconds"
    wait_for(lambda: (agent.value(name, collector="incidents") or 0) > soon, "looks at servers")
    psutil.Process(installed.server.pid).kill()
    for number, (_, server) in installed.in_vain.items():
        psutil.Process(server.pid).send_signal(number)
    return installed


def test_a_server_of_another_user_that_has_ended_is_named(asked_in_vain: Installed) -> None:
    server = asked_in_vain.server.pid

    def told() -> bool:
        return any(
            f"(pid {server}), which has ended" in dict(pairs)["process"]
            for name, pairs in asked_in_vain.agent.series()
            if name == "rl_rank_waits_for" and dict(pairs)["job_id"] == asked_in_vain.asks
        )

    wait_for(told, "the server that has ended", limit=180, pause=1.0)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(signal.SIGUSR1, id="closes_every_connection"),
        pytest.param(signal.SIGUSR2, id="refuses"),
    ],
)
def test_a_server_of_another_user_that_is_asked_again_and_again_is_named(
    asked_in_vain: Installed, after: signal.Signals
) -> None:
    job, server = asked_in_vain.in_vain[after]

    def told() -> bool:
        return any(
            f"(pid {server.pid})" in dict(pairs).get("through", "")
            for name, pairs in asked_in_vain.agent.series()
            if name == "rl_rank_waits_for" and dict(pairs)["job_id"] == job
        )

    wait_for(told, "the server that is asked again and again", limit=180, pause=1.0)


def test_the_debug_server_of_another_users_rank_is_asked(node: Node, installed: Installed) -> None:
    told = {"job_id": node.jobs[2], "witness": "flight_recorder"}.items()
    wait_for(
        lambda: any(
            name == "rl_rank_nccl_operation" and told <= dict(pairs).items()
            for name, pairs in installed.agent.series()
        ),
        "what its flight recorder holds",
        limit=90,
    )


def test_every_collector_succeeds_that_does_as_root(node: Node, installed: Installed) -> None:
    def states(series: Series) -> dict[tuple[str, str], float]:
        return {
            (name, dict(pairs)["collector"]): value
            for (name, pairs), value in series.items()
            if name in ("stagewatch_collector_success", "stagewatch_collector_no_data")
        }

    def differ() -> set[object]:
        ours, theirs = states(node.root.series()), states(installed.agent.series())
        return {*ours.items()} ^ {*theirs.items()}

    try:
        wait_for(lambda: not differ(), "the same collectors succeed")
    except AssertionError:
        pytest.fail(f"installed by {installed.how.name} these differ: {sorted(map(str, differ()))}")
    for name in ("stagewatch_kmsg_readable", "stagewatch_processes_denied"):
        wait_for(
            lambda name=name: node.root.value(name) == installed.agent.value(name),  # type: ignore[misc]
            f"the same {name}",
        )


def test_a_file_that_its_user_keeps_for_himself_is_counted(
    node: Node, installed: Installed
) -> None:
    name = "stagewatch_nccl_inspector_unreadable"
    wait_for(lambda: node.root.value(name) == 0, "root reads it")
    wait_for(lambda: installed.agent.value(name) == 1, "the agent tells that it may not")


def test_the_process_with_the_socket_has_no_capability(installed: Installed) -> None:
    pid = installed.agent.process.pid
    listening = [one for one in psutil.Process(pid).net_connections() if one.status == "LISTEN"]
    assert [one.laddr.port for one in listening] == [installed.agent.port]
    for thread in psutil.Process(pid).threads():
        held = as_installed.status(pid, thread.id)
        assert {int(held[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
        assert held["NoNewPrivs"] == "1"
    assert "0" not in as_installed.status(pid)["Uid"].split()


def test_who_has_capabilities_has_no_socket_and_no_more_calls_than_it_needs(
    installed: Installed,
) -> None:
    wanted = sum(1 << number for number in capabilities.NAMES)
    keeper = installed.keeper
    agents = psutil.Process(installed.agent.process.pid).children(recursive=True)
    everybody = {keeper, *keeper.children(recursive=True), *agents}
    able = []
    for one in everybody:
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            able += [one] if int(as_installed.status(one.pid)["CapPrm"], 16) else []
    started = {one.pid for one in everybody if one.ppid() == keeper.pid}
    assert {one.pid for one in able} == {keeper.pid, *started}
    assert int(as_installed.status(keeper.pid)["CapPrm"], 16) == wanted
    for one in able:
        assert not int(as_installed.status(one.pid)["CapPrm"], 16) & ~wanted
        assert as_installed.status(one.pid)["Seccomp"] == "2"
        assert not one.net_connections("inet")


def test_a_child_with_privileges_is_started_anew(installed: Installed) -> None:
    def children() -> set[int]:
        return {child.pid for child in installed.keeper.children()}

    before = wait_for(children, "the reader of /proc")
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: children() - before, "another one")
    wait_for(
        lambda: installed.agent.value("stagewatch_collector_success", collector="rank_io") == 1,
        "it reads",
    )


def test_the_agent_lives_on_without_its_keeper_or_is_begun_anew(
    node: Node, installed: Installed
) -> None:
    """The last one: engines start an agent again."""
    agent, keeper = installed.agent, installed.keeper
    if not installed.how.keeper:
        for child in (*keeper.children(), keeper):
            child.kill()
        wait_for(lambda: agent.process.poll() is not None, "the end of the agent")
        assert "the keeper of privileges has ended" in agent.log.read_text()
        return
    keeper.kill()
    wait_for(lambda: installed.keeper.pid != keeper.pid, "another keeper")
    holder, path = psutil.Process(installed.keeper.ppid()), agent.directory / "keeper"
    path.unlink()
    for one in (holder, installed.keeper):
        one.kill()

    def denied_more() -> float:
        """Than to root's agent, to which a container's first process may be, too."""
        counts = [one.value("stagewatch_processes_denied") or 0.0 for one in (agent, node.root)]
        return counts[0] - counts[1]

    wait_for(lambda: denied_more() > 0, "processes that are denied")
    with socket.create_server(("127.0.0.1", 0)):  # whose holder `net` has not been told yet
        for collector in ("rank_io", "net", "clock"):
            wait_for(
                lambda name=collector: (  # type: ignore[misc]
                    agent.value("stagewatch_collector_success", collector=name) == 0
                ),
                f"{collector} fails",
            )
    for text in (
        "processes of other users cannot be read",
        f"the keeper of privileges cannot be reached at {path}: ",
    ):
        wait_for(lambda text=text: text in agent.get("/")[1], text)  # type: ignore[misc]
    assert agent.value("rl_rank_step", job_id=node.jobs[0]), "what can be seen is shown"
    as_installed.hold_socket(installed.how, agent.directory, installed.children)
    wait_for(lambda: denied_more() == 0, "it reads again", limit=90)
    assert agent.process.poll() is None


@pytest.mark.parametrize("command", ["inspect", "check-config"])
def test_commands_of_a_user_tell_what_he_cannot_see(node: Node, command: str) -> None:
    told = subprocess.run(
        as_installed.as_user(node.directory / f"user-{command}", FIRST_UID + 21,
                sys.executable, "-m", "stagewatch.cli", command),
        capture_output=True, text=True, env=clean_environ({"HOME": "/"}), check=False,
    )  # fmt: skip
    assert re.search(r"\d+ processes of other users cannot be read: that takes CAP_", told.stderr)
    assert "Traceback" not in told.stderr
