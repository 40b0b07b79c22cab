"""HTTP towards an agent under test, without a client library where that matters."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from stagewatch.core.runner import Runner
from stagewatch.web.agent_server import AgentServer

GENEROUS = 30.0
"""Seconds that a condition is waited for on a loaded machine."""


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Agent:
    """A server on a free port of the loopback interface, with its runner."""

    server: AgentServer
    runner: Runner

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.server.port)

    def get(self, path: str, method: str = "GET", **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection(*self.address, timeout=GENEROUS)) as client:
            client.request(method, path, headers=named)
            response = client.getresponse()
            return Reply(response.status, response.headers, response.read())

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=GENEROUS)

    def send(self, data: bytes) -> bytes:
        """What a raw request brings back, until the server closes."""
        with self.connect() as sock:
            sock.sendall(data)
            return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    received = b""
    while piece := sock.recv(1 << 16):
        received += piece
    return received


Serve = Callable[..., Agent]
