"""Packets lost, delayed and names unresolved, in network namespaces of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fakes.network import Hosts, missing
from tests.faults.injecting import Injector
from tests.ranks.fakes import Program, program
from tests.waiting import wait_for

OTHERS_RULE = "-A INPUT -s 10.99.0.1/32 -j DROP"

ANSWERER = """
import socket
socket_ = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
socket_.bind(("10.77.0.2", int(__import__("sys").argv[1])))
print("listens")
while True:
    question, whence = socket_.recvfrom(2048)
    socket_.sendto(question, whence)
"""
ASKER = """
import socket, struct, sys
def query(name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\\0" + b"\\0\\1\\0\\1"
for line in sys.stdin:
    port, count, name = line.split()
    got = 0
    for _ in range(int(count)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0.25)
            asking.sendto(query(name), ("10.77.0.2", int(port)))
            try:
                got += asking.recv(2048) == query(name)
            except TimeoutError:
                pass
    print(got)
"""


class Pair:
    """Host `a` asks by UDP, host `b` answers what it was sent."""

    def __init__(self, hosts: Hosts, stack: ExitStack) -> None:
        self._hosts = hosts
        self._stack = stack
        self.enter = hosts.enter(hosts.a)
        self._asker: Program = stack.enter_context(program(ASKER, prefix=self.enter))

    def answer(self, port: int) -> None:
        prefix = self._hosts.enter(self._hosts.b)
        answerer = self._stack.enter_context(program(ANSWERER, str(port), prefix=prefix))
        assert answerer.hear() == "listens"

    def answered(self, port: int, name: str, count: int = 1) -> int:
        """How many of so many questions got an answer."""
        return int(self._asker.ask(f"{port} {count} {name}"))

    def rules(self, tool: str = "iptables") -> str:
        return self._hosts.run(self._hosts.a, tool, "-S")

    def run(self, *command: str) -> str:
        return self._hosts.run(self._hosts.a, *command)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two hosts, the first of which has a rule of somebody else."""
    if reason := missing():
        pytest.skip(f"two network namespaces: {reason}")
    hosts = Hosts()
    with ExitStack() as stack:
        stack.callback(hosts.close)
        pair = Pair(hosts, stack)
        pair.run("iptables", *OTHERS_RULE.split())
        yield pair


def test_answers_of_the_peer_are_lost_and_of_its_other_ports_not(
    injector: Injector, pair: Pair
) -> None:
    for port in (9001, 9002):
        pair.answer(port)
    before = pair.rules()
    script = injector.hold(
        "network-loss", "--target=10.77.0.2:9001", "--loss=50%", prefix=pair.enter
    )
    assert 0 < pair.answered(9001, "x", 60) < 60  # misses either end once in 2**60
    assert pair.answered(9002, "x", 20) == 20
    script.process.send_signal(signal.SIGINT)
    script.finish(130)
    assert pair.rules() == before and OTHERS_RULE in before
    assert pair.answered(9001, "x", 20) == 20
    injector.gone()


@pytest.mark.parametrize(("moment", "both"), [("the chain", True), ("the rule", False)])
def test_an_injector_that_is_killed_while_it_begins_leaves_nothing(
    injector: Injector, pair: Pair, moment: str, both: bool
) -> None:
    before = pair.rules()
    reached = {
        "the chain": lambda: "-N STAGEWATCH" in pair.rules(),
        "the rule": lambda: "-A STAGEWATCH" in pair.rules(),
    }[moment]
    argv = ("network-loss", "--target=10.77.0.2:9001", "--for=600s")
    script = injector.start(*argv, prefix=pair.enter)
    wait_for(reached, moment)
    watchdogs = injector.watchdogs() if both else []
    for watchdog in watchdogs:
        watchdog.send(signal.SIGSTOP)
    script.kill()
    for watchdog in watchdogs:
        watchdog.send(signal.SIGKILL)
    wait_for(lambda: not any(watchdog.alive for watchdog in watchdogs), "the watchdogs' death")
    injector.run("list", prefix=pair.enter)
    injector.gone()
    assert pair.rules() == before


def test_a_name_does_not_resolve_and_others_do(injector: Injector, pair: Pair) -> None:
    pair.answer(53)
    names = ("metaserver.cluster.local", "MetaServer.Cluster.Local", "other.cluster.local")
    assert [pair.answered(53, name) for name in names] == [1, 1, 1]
    script = injector.hold("dns", "--target=metaserver.cluster.local", prefix=pair.enter)
    assert [pair.answered(53, name) for name in names] == [0, 0, 1]
    script.process.terminate()
    script.finish(143)
    assert [pair.answered(53, name) for name in names] == [1, 1, 1]
    assert "STAGEWATCH" not in pair.rules() + pair.rules("ip6tables")
    injector.gone()


def test_the_way_by_which_one_is_logged_in_is_not_cut(injector: Injector) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    environ = {"SSH_CONNECTION": "127.0.0.1 50022 127.0.0.1 22"}
    for target in ("127.0.0.1:any", "127.0.0.1:50022"):
        argv = ("inject", "network-loss", f"--target={target}", "--for=5s", "--dry-run")
        assert "cut yourself off" in injector.refused(*argv, status=1, **environ)
    argv = ("inject", "network-loss", "--target=127.0.0.1:8000", "--for=5s", "--dry-run")
    injector.refused(*argv, **environ, status=0)


@pytest.mark.parametrize("target", ["0.0.0.0:80", "224.0.0.1:80"])
def test_an_address_that_is_no_peers_is_refused(injector: Injector, target: str) -> None:
    said = injector.refused("inject", "network-loss", f"--target={target}", "--for=5s", status=1)
    assert "is not the address of a peer" in said


def test_without_the_privilege_it_says_which(injector: Injector) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, and setpriv (Debian package util-linux) to give it up")
    drop = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-all")
    argv = ("inject", "network-loss", "--target=127.0.0.1:80", "--for=5s", "--dry-run")
    assert "CAP_NET_ADMIN" in injector.run(*argv, prefix=drop, status=1)


def test_rules_are_removed_by_a_command_from_another_network_namespace(
    injector: Injector, pair: Pair
) -> None:
    before = pair.rules()
    script = injector.hold("network-loss", "--target=10.77.0.2:9001", prefix=pair.enter)
    assert pair.rules() != before
    injector.kill(script)
    assert "left behind" in injector.run("list")
    assert pair.rules() == before
    assert not injector.left()
