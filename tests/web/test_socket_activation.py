"""The port that systemd holds: an agent takes it over, and leaves it behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.deploy.engine import ROOT
from tests.running import Python
from tests.waiting import wait_for

HOLDS = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    agent = os.fork()
    if agent == 0:
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)
        os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        command = [sys.executable, "-m", "stagewatch.cli", "node", *sys.argv[1:]]
        os.execvp("setpriv", ["setpriv", "--pdeathsig=KILL", *command])
    os.waitpid(agent, 0)
"""
"""Makes a socket and starts agents with it one after the other, as systemd does."""


def test_clients_wait_for_the_next_agent_on_the_port_that_nobody_else_can_take(
    python: Python, tmp_path: Path
) -> None:
    holder = python(HOLDS, "--listen", "127.0.0.1:1", "--record-dir", tmp_path / "ranks")
    holder.said("port")
    port = int(holder.output().split()[1])

    def agents() -> set[int]:
        return {child.pid for child in psutil.Process(holder.pid).children()}

    def healthy() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthy", timeout=60) as answer:
            return bytes(answer.read())

    for number in (signal.SIGTERM, signal.SIGKILL):
        assert healthy() == b"healthy\n"
        [before] = agents()
        os.kill(before, number)
        with closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        wait_for(lambda gone=before: gone not in agents(), "the agent's end")  # type: ignore[misc]
        assert healthy() == b"healthy\n", "the next one has answered"


def test_the_unit_holds_the_address_that_the_agent_has_by_default() -> None:
    text = (ROOT / "deploy" / "systemd" / "stagewatch-node.socket").read_text()
    assert re.findall(r"^ListenStream=(\S+)", text, re.MULTILINE) == ["127.0.0.1:9947"]
