"""One client's connection: every wait on it ends, and another thread can cut it off."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from stagewatch.web.message import Refused

_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1 << 20
_PIECE = 1 << 16
_TLS_HANDSHAKE = 0x16
"""First byte of a TLS connection: content type 22, handshake (RFC 8446 section 5.1)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one agent grants its clients."""

    connections: int = 32
    """Connections at once; further ones are answered 503."""
    connections_per_peer: int = 16
    """How many of these one address may hold, so that no single host locks out the others."""
    head_bytes: int = 16 << 10
    """Request line and headers together."""
    head_seconds: float = 5.0
    """For a handshake, or from the first byte of a request to the end of its headers."""
    idle_seconds: float = 90.0
    """Between two requests; above Prometheus' usual interval, so that it can reuse connections."""
    send_seconds: float = 10.0
    """For the client to take a whole response."""
    at_once: int = 4
    """Answers made at the same time for one path; further requests wait."""
    wait_seconds: float = 3.0
    """How long they wait before the answer is 503."""


_HEAD_GRACE = 0.05
_SEND_GRACE = 1.0
"""Seconds for a request to arrive and a response to be taken, before others may have the place."""


class Connection:
    """A socket with deadlines.  Used by one thread; only `abort` may be called by others."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self.idle_since: float | None = None
        """When the last response had been sent, while the next request has not begun."""
        self.owing_from: float | None = time.monotonic() + _HEAD_GRACE
        """From when on the client keeps a place by being slow; None while it waits for us."""
        self._sock = sock
        self._limits = limits
        self._buffer = bytearray()
        self._unread = False
        self._aborted = False

    def secure(self, context: ssl.SSLContext) -> Mapping[str, Any] | None:
        """Shake hands; returns the client's certificate where one was verified.

        Raises `Refused` for plain HTTP, or `OSError`, also for TLS errors.
        """
        deadline = time.monotonic() + self._limits.head_seconds
        self._sock.settimeout(self._limits.head_seconds)
        first = self._sock.recv(1, socket.MSG_PEEK)
        if first and first[0] != _TLS_HANDSHAKE:
            raise Refused(HTTPStatus.BAD_REQUEST, "this port speaks HTTPS")
        secured = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        self._sock = secured
        secured.settimeout(self._seconds_left(deadline))
        secured.do_handshake()
        return secured.getpeercert()

    def receive_head(self) -> bytes | None:
        """The next request up to and with the empty line; None when the client is done.

        Raises `Refused` for a head that is too long or too slow, or `OSError` when the client
        is gone.
        """
        limits = self._limits
        first_request = self.idle_since is None
        deadline = time.monotonic() + (
            limits.head_seconds if first_request else limits.idle_seconds
        )
        searched = 0
        while True:
            if self._buffer:
                if not searched:
                    deadline = time.monotonic() + limits.head_seconds
                    self.owing_from = self.owing_from or time.monotonic() + _HEAD_GRACE
                    self.idle_since = None
                end = _end_of_head(self._buffer, max(0, searched - 3))
                if end and end <= limits.head_bytes:
                    head = bytes(self._buffer[:end])
                    del self._buffer[:end]
                    self.owing_from = None
                    return head
                if end or len(self._buffer) > limits.head_bytes:
                    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                    raise Refused(status, "the headers are too long")
                searched = len(self._buffer)
            piece = self._receive(deadline)
            if piece is None:
                if searched or first_request:
                    status = HTTPStatus.REQUEST_TIMEOUT
                    raise Refused(status, "the request took too long to arrive")
                return None
            if not piece:
                return None
            self._buffer += piece
            if not searched:  # RFC 9112 section 2.2: empty lines before a request are ignored
                self._buffer = self._buffer.lstrip(b"\r\n")

    def _receive(self, deadline: float) -> bytes | None:
        """The bytes that have arrived, empty at the end of the stream, None at the deadline."""
        try:
            self._sock.settimeout(self._seconds_left(deadline))
            return self._sock.recv(_PIECE >> 2)
        except TimeoutError:
            return None

    def send(self, head: bytes, body: bytes = b"") -> None:
        """Send both within the limit; the body is not copied, since many may send the same one.

        As much at once as the socket takes: after each call the thread may have to wait for the
        interpreter while collectors compute.

        Raises `TimeoutError` or another `OSError`.
        """
        self.owing_from = time.monotonic() + _SEND_GRACE
        deadline = time.monotonic() + self._limits.send_seconds
        first = head + body[:_PIECE]  # in one piece: a client may wait before it takes a second
        for data in (first, memoryview(body)[_PIECE:]):
            view = memoryview(data)
            while view:  # not sendall: over TLS its timeout starts afresh with every record
                self._sock.settimeout(self._seconds_left(deadline))
                view = view[self._sock.send(view) :]

    def answered(self) -> None:
        """Note that the client has its response and may send the next request."""
        self.owing_from = None
        self.idle_since = time.monotonic()

    def refuse(self, data: bytes) -> None:
        """Send the last response to a client that may be sending more than will be read."""
        self._unread = True
        with contextlib.suppress(OSError):
            self.send(data)

    def close(self) -> None:
        """Close; a refused client first gets time to read the response.

        A socket closed with unread data sends a reset, which discards the response on its way.
        """
        with contextlib.suppress(OSError, ValueError):
            # The plain methods: SSLSocket's own would switch to clear text under a running send.
            socket.socket.shutdown(self._sock, socket.SHUT_WR)
            if self._unread:
                deadline = time.monotonic() + _LINGER_SECONDS
                left = _LINGER_BYTES
                while left > 0:
                    self._sock.settimeout(self._seconds_left(deadline))
                    piece = len(socket.socket.recv(self._sock, _PIECE))
                    left = left - piece if piece else 0
        self._sock.close()

    def abort(self) -> None:
        """Make every wait on this connection end now."""
        self._aborted = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _seconds_left(self, deadline: float) -> float:
        if self._aborted:  # a handshake replaces the socket, perhaps just after it was shut down
            raise ConnectionAbortedError("the server cut the connection off")
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client was too slow")
        return left


def _end_of_head(data: bytearray, start: int) -> int:
    """Just past the first empty line, 0 if there is none; lines may end in LF alone."""
    marks = (b"\n\r\n", b"\n\n")
    ends = [at + len(mark) for mark in marks if (at := data.find(mark, start)) >= 0]
    return min(ends, default=0)
