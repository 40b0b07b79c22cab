"""A small HTTP server for pages that are made on the spot, with a limit on everything.

A fixed number of connections, and of threads that serve one each.  The accepting thread never waits
for a client: handshakes, requests and responses all happen in a thread that serves.  All threads
begin with the server, since `Thread.start` may wait for ever where memory is short: a thread that
dies of it in its first lines never reports that it has begun.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections import deque
from http import HTTPStatus
from queue import SimpleQueue

from stagewatch.core.config import show
from stagewatch.core.errors import ConfigError
from stagewatch.core.shortage import SHORTAGES, is_shortage
from stagewatch.web.connection import Connection, Limits
from stagewatch.web.message import Answer, Refused, parse_head, plain
from stagewatch.web.security import WebSecurity

log = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.2
"""How often the accepting thread looks after refused clients, while there are any."""
_BACKLOG = 1024
_FIRST_INHERITED = 3
_IDLE = "idle-http"
_Admitted = tuple[Connection, str, threading.Event]
"""A connection, the client's address, and what is set once a thread serves it."""
_REASONS = {
    errno.EADDRINUSE: "the port is in use; is another agent running?",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
    errno.EACCES: "no permission; ports below 1024 need CAP_NET_BIND_SERVICE",
}
_BUSY = plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections", {"Retry-After": "1"}).last()


class HTTPServer:
    """Serves `answer` on one address; construction binds it.

    An empty host means every interface, IPv4 and IPv6; without `tls` it speaks clear text.
    Raises `ConfigError` where the address cannot be had.
    """

    def __init__(
        self,
        address: tuple[str, int],
        answer: Answer,
        *,
        limits: Limits,
        tls: WebSecurity | None,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[Connection, str] = {}
        self._refused = _RefusedClients()
        self._closing = threading.Event()
        self._accepting: threading.Thread | None = None
        self._mailboxes: list[SimpleQueue[_Admitted | None]] = [
            SimpleQueue() for _ in range(limits.connections)
        ]
        self._idle: list[SimpleQueue[_Admitted | None]] = []
        self._free = threading.Semaphore(0)
        inherited = _inherited()
        self._shared = inherited is not None
        """Whether systemd holds the listening socket too, which must outlive this process."""
        try:
            self._listener = inherited or _listen(address)
        except OSError as error:
            reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
            raise ConfigError(f"cannot listen on {show(address)}: {reason}") from error
        self.port: int = self._listener.getsockname()[1]
        """The port that the server listens on, also where port 0 was asked for."""

    def start(self) -> None:
        """Begin to answer, in the background."""
        for mailbox in self._mailboxes:
            threading.Thread(target=self._work, args=(mailbox,), name=_IDLE, daemon=True).start()
        # The last one: who is answered may take it that the agent has begun.
        self._accepting = threading.Thread(target=self._accept, name="http-accept", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stop listening and cut every connection off; returns within a second."""
        self._closing.set()
        if not self._shared:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        if self._accepting is not None:
            self._accepting.join()
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.abort()
        for mailbox in self._mailboxes:
            mailbox.put(None)
        self._refused.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            looks = self._refused or self._shared
            self._listener.settimeout(_LOOK_EVERY_SECONDS if looks else None)
            try:
                sock, address = self._listener.accept()
                self._begin(sock, str(address[0]))
            except TimeoutError:
                pass
            except (OSError, MemoryError) as error:
                if is_shortage(error):  # the client still waits: do not spin on it
                    reason = getattr(error, "strerror", None) or "no memory"
                    SHORTAGES.met(f"cannot accept a connection: {reason}")
                    self._closing.wait(_LOOK_EVERY_SECONDS)
            self._refused.sweep()

    def _begin(self, sock: socket.socket, peer: str) -> None:
        connection = self._admit(sock, peer)
        if connection is not None and self._free.acquire(timeout=_LOOK_EVERY_SECONDS):
            taken = threading.Event()
            # The thread that was free last: each keeps memory of the pages that it has sent.
            self._idle.pop().put((connection, peer, taken))
            taken.wait(_LOOK_EVERY_SECONDS)  # or hasty clients would take places faster than leave
            return
        if connection is not None:
            self._forget(connection)
        self._refused.add(sock, b"" if self._tls else _BUSY)

    def _work(self, mailbox: SimpleQueue[_Admitted | None]) -> None:
        thread = threading.current_thread()
        while True:
            thread.name = _IDLE
            self._idle.append(mailbox)
            self._free.release()
            admitted = mailbox.get()
            if admitted is None:
                return
            connection, peer, taken = admitted
            with contextlib.suppress(MemoryError):  # met again while it was told
                thread.name = f"http-{peer}"
                taken.set()
                self._serve(connection)

    def _admit(self, sock: socket.socket, peer: str) -> Connection | None:
        """A place for a new connection; when all are taken, that of the longest idle one.

        Where none is idle but all are taken, the slowest client gives way: many addresses, which
        every user of this machine has on its loopback, must not lock out the scraper.
        """
        with self._lock:
            rivals = [item for item, owner in self._open.items() if owner == peer]
            alone = len(rivals) >= self._limits.connections_per_peer
            if not alone:
                full = len(self._open) >= self._limits.connections
                rivals = list(self._open) if full else []
            if rivals:
                now = time.monotonic()
                give_way = [(since, item) for item in rivals if (since := item.idle_since)]
                if not give_way and not alone:
                    owing = ((item.owing_from, item) for item in rivals)
                    give_way = [(since, item) for since, item in owing if since and since < now]
                if not give_way:
                    return None
                longest = min(give_way, key=lambda pair: pair[0])[1]
                longest.abort()
                del self._open[longest]
            connection = Connection(sock, self._limits)
            self._open[connection] = peer
            return connection

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._open.pop(connection, None)

    def _serve(self, connection: Connection) -> None:
        try:
            if self._tls is not None:
                certificate = connection.secure(self._tls.context())
                if not self._tls.admits(certificate):
                    return
            while not self._closing.is_set() and self._exchange(connection):
                connection.answered()
        except Refused as refusal:
            response = plain(refusal.status, str(refusal))
            connection.refuse(response.last())
        except OSError as error:  # gone, too slow, or a failed handshake: the client's affair
            log.debug("connection ended: %s", error)
        except Exception as error:
            if is_shortage(error):
                SHORTAGES.met(f"a connection ended: {type(error).__name__}")
            else:
                log.exception("connection ended")
        finally:
            self._forget(connection)
            connection.close()

    def _exchange(self, connection: Connection) -> bool:
        """One request and its response; whether another may follow."""
        head = connection.receive_head()
        if head is None:
            return False
        request = parse_head(head)
        keep_alive = request.keep_alive and not self._closing.is_set()
        response = self._answer(request)
        body = b"" if request.method == "HEAD" else response.body
        connection.send(response.head(keep_alive=keep_alive), body)
        return keep_alive


def _inherited() -> socket.socket | None:
    """The listening socket that systemd has made and holds, if any; see sd_listen_fds(3).

    While the agent is down nobody else can take its port then, and clients wait.
    """
    ours = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    if os.environ.pop("LISTEN_FDS", "") != "1" or not ours:
        return None
    listener = socket.socket(fileno=_FIRST_INHERITED)
    listener.set_inheritable(False)
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _listen(address: tuple[str, int]) -> socket.socket:
    """A listening socket; its address is resolved, and an empty host is every interface."""
    host, port = address
    if host:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, target = resolved[0]
        listener = socket.create_server(target, family=family, backlog=_BACKLOG)
    else:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        listener = socket.create_server(
            address, family=family, backlog=_BACKLOG, dualstack_ipv6=dual
        )
    # Accepted sockets inherit it; without it, the end of a page above 64 KiB waits now and then
    # for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _RefusedClients:
    """Holds the sockets of refused clients for at most a second, so that they can read why.

    A socket closed at once would answer the request that is still on its way with a reset, and the
    client would see that instead of the 503.  Never waits; used by the accepting thread alone.
    """

    _SECONDS = 1.0
    _MOST = 64

    def __init__(self) -> None:
        self._held: deque[tuple[float, socket.socket]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, sock: socket.socket, response: bytes) -> None:
        """Send `response`, as far as that goes without waiting; the oldest makes room."""
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            if response:
                sock.send(response)
            sock.shutdown(socket.SHUT_WR)
        self._held.append((time.monotonic(), sock))
        if len(self._held) > self._MOST:
            self._held.popleft()[1].close()

    def sweep(self) -> None:
        """Let go of those that have closed their end, or whose second is over."""
        for _ in range(len(self._held)):
            since, sock = self._held.popleft()
            try:
                done = not sock.recv(1 << 16)
            except BlockingIOError:
                done = False
            except OSError:
                done = True
            if done or time.monotonic() - since > self._SECONDS:
                sock.close()
            else:
                self._held.append((since, sock))

    def close(self) -> None:
        """Let go of all."""
        while self._held:
            self._held.popleft()[1].close()
