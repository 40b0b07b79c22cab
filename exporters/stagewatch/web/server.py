"""A small HTTP server for pages that are made on the spot, with a bound on everything.

One thread a connection, a fixed number of them; the accepting thread never waits for a client:
handshakes, requests and responses all happen in the connection's own thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import socketserver
import threading
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from stagewatch.core.config import show
from stagewatch.core.errors import ConfigError
from stagewatch.web.connection import (
    Connection,
    HeadTooLarge,
    HeadTooSlow,
    Limits,
    PlainHTTP,
)
from stagewatch.web.message import (
    Answer,
    BadRequest,
    Response,
    parse_head,
    plain,
)
from stagewatch.web.refused import RefusedClients

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_REASONS = {
    errno.EADDRINUSE: "the port is in use; is another agent running?",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
    errno.EACCES: "no permission; ports below 1024 need CAP_NET_BIND_SERVICE",
}
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BUSY = plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections", {"Retry-After": "1"}).encode(
    keep_alive=False, head_only=False
)


class TLS(Protocol):
    """What the server needs to know of TLS."""

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this verified certificate may ask."""


class HTTPServer(socketserver.TCPServer):
    """Serves `answer` on one address; construction binds it.

    An empty host means every interface, IPv4 and IPv6; without `tls` it speaks
    clear text.  Raises `ConfigError` where the address cannot be had.
    """

    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(
        self,
        address: tuple[str, int],
        answer: Answer,
        *,
        limits: Limits | None = None,
        tls: TLS | None = None,
    ) -> None:
        self._answer = answer
        self._limits = limits or Limits()
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[Connection, str] = {}
        self._refused = RefusedClients()
        self._accepting: threading.Thread | None = None
        self._closing = threading.Event()
        try:
            self.address_family, bind_to, self._dual_stack = _resolve(address)
            super().__init__(bind_to, socketserver.BaseRequestHandler)
        except OSError as error:
            reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
            raise ConfigError(f"cannot listen on {show(address)}: {reason}") from error
        # A client that is gone again must not leave the accepting thread in accept().
        self.socket.setblocking(False)

    @property
    def port(self) -> int:
        """The port that is listened on, also where port 0 was asked for."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Begin to answer, in the background."""
        self._accepting = threading.Thread(
            target=self.serve_forever, args=(0.2,), name="http-accept", daemon=True
        )
        self._accepting.start()

    def close(self) -> None:
        """Stop listening and cut every connection off; returns within a second."""
        self._closing.set()
        if self._accepting is not None:
            self.shutdown()
        self.server_close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.abort()
        self._refused.close()

    def server_bind(self) -> None:
        # Accepted sockets inherit it; without it, the end of a page above 64 KiB waits now and
        # then for the client's delayed acknowledgement.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not self._dual_stack)
            )
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _OUT_OF_RESOURCES:  # the socket stays readable: do not spin on it
                log.warning("cannot accept a connection: %s", error.strerror)
                self._closing.wait(0.2)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        peer = str(client_address[0])
        connection = self._admit(request, peer)
        if connection is None:
            self._refused.add(request, b"" if self._tls else _BUSY)
            return
        thread = threading.Thread(
            target=self._serve, args=(connection,), name=f"http-{peer}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the limit of threads or of memory
            self._forget(connection)
            self._refused.add(request, b"" if self._tls else _BUSY)

    def _admit(self, sock: socket.socket, peer: str) -> Connection | None:
        """A place for a new connection; when all are taken, that of the longest idle one."""
        with self._lock:
            held = Counter(self._open.values())
            if held[peer] >= self._limits.connections_per_peer:
                candidates = [item for item, owner in self._open.items() if owner == peer]
            elif len(self._open) >= self._limits.connections:
                candidates = list(self._open)
            else:
                candidates = None
            if candidates is not None:
                idle = [(since, item) for item in candidates if (since := item.idle_since)]
                if not idle:
                    return None
                longest = min(idle, key=lambda pair: pair[0])[1]
                longest.abort()
                del self._open[longest]
            connection = Connection(sock, self._limits)
            self._open[connection] = peer
            return connection

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._open.pop(connection, None)

    def service_actions(self) -> None:
        self._refused.sweep()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.warning("connection from %s failed", client_address, exc_info=True)

    def _serve(self, connection: Connection) -> None:
        try:
            if self._tls is not None:
                certificate = connection.secure(self._tls.context())
                if not self._tls.admits(certificate):
                    return
            while not self._closing.is_set() and self._exchange(connection):
                connection.answered()
        except PlainHTTP:
            refusal = plain(HTTPStatus.BAD_REQUEST, "this port speaks HTTPS")
            with contextlib.suppress(OSError):
                connection.refuse_body()
                connection.send(refusal.encode(keep_alive=False, head_only=False))
        except OSError as error:  # gone, too slow, or a failed handshake: the client's affair
            log.debug("connection ended: %s", error)
        except Exception:
            log.exception("connection ended")
        finally:
            self._forget(connection)
            connection.close()

    def _exchange(self, connection: Connection) -> bool:
        """One request and its response; whether another may follow."""
        try:
            head = connection.receive_head()
            if head is None:
                return False
            request = parse_head(head)
        except (HeadTooLarge, HeadTooSlow, BadRequest) as error:
            connection.refuse_body()
            connection.send(_refusal(error).encode(keep_alive=False, head_only=False))
            return False
        keep_alive = request.keep_alive and not self._closing.is_set()
        response = self._answer(request)
        connection.send(response.encode(keep_alive=keep_alive, head_only=request.method == "HEAD"))
        return keep_alive


def _refusal(error: Exception) -> Response:
    if isinstance(error, BadRequest):
        return plain(error.status, str(error))
    if isinstance(error, HeadTooLarge):
        return plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too long")
    return plain(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")


def _resolve(address: tuple[str, int]) -> tuple[socket.AddressFamily, Any, bool]:
    """Family, address to bind, and whether an IPv6 socket is to take IPv4 clients as well."""
    host, port = address
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", port), True
        return socket.AF_INET, ("0.0.0.0", port), False  # noqa: S104 - asked for
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr, False
