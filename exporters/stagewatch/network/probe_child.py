"""A probe of one name or endpoint: looks it up, connects and asks, and times every phase.

Runs in a worker of the helper process, since a resolver may block for half a minute; standard
library only.  Errors are results.
"""

from __future__ import annotations

import errno
import socket
import time
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from stagewatch.core.children.worker import Report

MAX_HEAD = 16 << 10
"""Bytes read of an HTTP answer at most."""

_RESOLVER_ERRORS = {
    getattr(socket, name): name
    for name in ("EAI_AGAIN", "EAI_FAIL", "EAI_NODATA", "EAI_NONAME", "EAI_SYSTEM")
    if hasattr(socket, name)
}


class _Failed(Exception):
    """An error whose text is the name of its cause."""


def run(arguments: dict[str, Any], leftover: object, report: Report) -> dict[str, Any]:
    """Probe `target` once, each step within `timeout` seconds."""
    seconds: dict[str, float] = {}
    result: dict[str, Any] = {"seconds": seconds}
    probe = _Probe(arguments["target"], arguments["timeout"], seconds, report)
    try:
        probe.run()
    except (OSError, _Failed, ValueError) as error:
        result["error"] = {"phase": probe.phase, "error": _name(error)}
    return result


class _Probe:
    def __init__(
        self, target: str, timeout: float, seconds: dict[str, float], report: Report
    ) -> None:
        self.phase = ""
        self._target = target
        self._timeout = timeout
        self._seconds = seconds
        self._report = report
        self._began = 0.0

    def run(self) -> None:
        """Run all phases of the target."""
        kind, _, rest = self._target.partition(":")
        if kind == "dns":
            self._look_up(rest, None)
            return
        if kind == "tcp":
            host, _, port = rest.rpartition(":")
            with ExitStack() as stack:
                self._connect(stack, self._look_up(host.strip("[]"), int(port)))
            return
        url = urlsplit(self._target)
        host, secure = url.hostname or "", url.scheme == "https"
        with ExitStack() as stack:
            addresses = self._look_up(host, url.port or (443 if secure else 80))
            connection = self._connect(stack, addresses)
            if secure:
                connection = self._secure(stack, connection, host)
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            self._ask(connection, url.netloc.rpartition("@")[2], path)

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self._report.phase(phase)
        self._began = time.monotonic()

    def _leave(self) -> None:
        self._seconds[self.phase] = time.monotonic() - self._began

    def _look_up(self, host: str, port: int | None) -> list[Any]:
        self._enter("dns")
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._leave()
        return found

    def _connect(self, stack: ExitStack, addresses: list[Any]) -> socket.socket:
        """Connect to the first address: the probe must show its failure, even if another works."""
        self._enter("connect")
        family, kind, protocol, _, address = addresses[0]
        connection = stack.enter_context(socket.socket(family, kind, protocol))
        connection.settimeout(self._timeout)
        connection.connect(address)
        self._leave()
        return connection

    def _secure(self, stack: ExitStack, connection: socket.socket, host: str) -> socket.socket:
        import ssl

        self._enter("tls")
        context = ssl.create_default_context()
        secured = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
        self._leave()
        return secured

    def _ask(self, connection: socket.socket, host: str, path: str) -> None:
        self._enter("http")
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        connection.sendall(f"{request}User-Agent: stagewatch\r\nAccept: */*\r\n\r\n".encode())
        head = b""
        end = time.monotonic() + self._timeout
        while b"\r\n" not in head and len(head) < MAX_HEAD:
            connection.settimeout(max(0.001, end - time.monotonic()))
            data = connection.recv(4096)
            if not data:
                break
            head += data
        self._leave()
        version, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/") or not status.isdigit():
            raise _Failed("no_http")
        if not b"200" <= status < b"400":
            raise _Failed(f"status_{status.decode()}")


def _name(error: Exception) -> str:
    """A short name of an error, from a limited set."""
    if isinstance(error, socket.gaierror):
        return _RESOLVER_ERRORS.get(error.errno or 0, "EAI_OTHER")
    if isinstance(error, TimeoutError):
        return "ETIMEDOUT"
    if isinstance(error, _Failed):
        return str(error)
    kind = type(error).__name__  # ssl is loaded only where it is needed
    if kind.startswith("SSL"):
        return "certificate" if kind == "SSLCertVerificationError" else "tls"
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number or 0, kind)
