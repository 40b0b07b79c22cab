"""A talk with what a job listens with: it ends in time, however slowly the other end speaks."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from stagewatch.core.listeners import address_of

MAX_BYTES = 16 << 20
"""Of all answers."""


class Talk:
    """A connection.  Its methods raise `OSError`; its owner closes it."""

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self._timeout, self._end = timeout, time.monotonic() + timeout
        self.received = bytearray()
        self._link = socket.create_connection(address, timeout)

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self._link.settimeout(self._left())
        self._link.sendall(data)

    def receive(self) -> bool:
        """Receive something more; false at the end."""
        try:
            self._link.settimeout(self._left())
            data = self._link.recv(1 << 16)
        except TimeoutError:
            raise TimeoutError(0, f"no answer within {self._timeout:g} s") from None
        self.received.extend(data)
        if len(self.received) > MAX_BYTES:
            raise OSError(0, f"more than {MAX_BYTES >> 20} MiB of answer")
        return bool(data)

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def _left(self) -> float:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


def listeners(uid: int) -> Iterator[tuple[str, int, str]]:
    """Address, port and inode of each socket of a user that takes connections; where it takes them
    to any address, the loopback one.  proc_pid_net(5) has the columns."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/net", name).read_text().splitlines()[1:]:
                fields = line.split()
                local, number = fields[1].split(":")
                if fields[3] == "0A" and int(fields[7]) == uid:
                    address = address_of(local)
                    loopback = "127.0.0.1" if address.version == 4 else "::1"
                    where = loopback if address.is_unspecified else str(address)
                    yield where, int(number, 16), fields[9]
