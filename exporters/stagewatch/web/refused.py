"""Clients that were turned away, kept for a moment so that they can read why."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque

_SECONDS = 1.0
_MOST = 64


class RefusedClients:
    """Holds refused sockets for at most a second.  Never waits; used by the accepting thread.

    A socket closed at once would answer the request that is still on its way with a reset, and
    the client would see that instead of the 503.
    """

    def __init__(self) -> None:
        self._held: deque[tuple[float, socket.socket]] = deque()

    def add(self, sock: socket.socket, response: bytes) -> None:
        """Send `response`, as far as that goes without waiting; the oldest makes room."""
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            if response:
                sock.send(response)
            sock.shutdown(socket.SHUT_WR)
        self._held.append((time.monotonic(), sock))
        if len(self._held) > _MOST:
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
            if done or time.monotonic() - since > _SECONDS:
                sock.close()
            else:
                self._held.append((since, sock))

    def close(self) -> None:
        """Let go of all."""
        while self._held:
            self._held.popleft()[1].close()
