"""Calls between the processes: JSON over HTTP, one connection per call."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from stagewatch_lab.rl.addresses import Address, AddressBook
from stagewatch_lab.rl.plan import Plan

Content = dict[str, Any]
Route = Callable[[Content], Content]

log = logging.getLogger(__name__)


class RemoteError(RuntimeError):
    """The other side answered with an error."""


class Server(HTTPServer):
    """Answers calls one by one in the serving thread, as an engine's RPC server does, so that the
    stages belong to that thread."""

    request_queue_size = 128

    def __init__(self, address: Address, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """The caller has gone away meanwhile."""
        log.warning("caller %s is gone: %s", client_address, sys.exc_info()[1])


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        """Run a route; an exception becomes status 500."""
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, answer = 200, self.server.routes[self.path](content)
        except Exception as error:
            log.error("%s failed: %s", self.path.strip("/"), _line(error))
            status, answer = 500, {"error": type(error).__name__, "message": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the workers log what they do."""


def serve(plan: Plan, name: str, host: str, *routes: Route) -> None:
    """Answer calls of these functions, by their names, for ever; publish the address as `name`."""
    server = Server((host, 0), {f"/{route.__name__}": route for route in routes})
    AddressBook(plan.directory).publish(name, (host, server.server_port))
    server.serve_forever()


def call(address: Address, route: str, content: Content, timeout: float) -> Content:
    """Ask, and wait for the answer.

    Raises `RemoteError` for an exception of the other side, `TimeoutError`, and `OSError` if the
    other side cannot be reached or hangs up.
    """
    body = json.dumps(content).encode()
    status, answer = transfer(address, "POST", f"/{route}", body, timeout)
    found: Content = json.loads(answer)
    if status != 200:
        raise RemoteError(f"HTTP {status} {found['error']}: {found['message']}")
    return found


def transfer(
    address: Address, method: str, path: str, body: bytes | None, timeout: float
) -> tuple[int, bytes]:
    """One request; status and body.  Raises `OSError`; `timeout` is for the whole."""
    end = time.monotonic() + timeout
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    try:
        connection.connect()
        link = connection.sock  # http.client forgets it before the answer's body is read
        _limit(link, end)
        connection.request(method, path, body)
        _limit(link, end)
        answer = connection.getresponse()
        _limit(link, end)
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(_line(error)) from error
    finally:
        connection.close()


def begin_log() -> None:
    """Lines with the time in milliseconds, on standard output."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(asctime)s.%(msecs)03d %(levelname)s: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def _limit(link: socket.socket, end: float) -> None:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    link.settimeout(left)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
