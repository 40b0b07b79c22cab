"""Connections to servers of a job that end in time, however slowly the server answers."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

from stagewatch.core.listeners import listeners as all_listeners

MAX_BYTES = 16 << 20
"""The most bytes of all answers together."""


class TimedConnection:
    """A connection with a deadline.  Its methods raise `OSError`; its owner closes it."""

    def __init__(self, address: tuple[str, int], timeout: float, most: int = MAX_BYTES) -> None:
        self._timeout, self._end, self._most = timeout, time.monotonic() + timeout, most
        self.received = bytearray()
        self._link = socket.create_connection(address, timeout)

    def send(self, data: bytes) -> None:
        """Send all data."""
        self._link.settimeout(self._seconds_left())
        self._link.sendall(data)

    def receive(self) -> bool:
        """Add more received data to `received`; returns false at the end."""
        try:
            self._link.settimeout(self._seconds_left())
            data = self._link.recv(1 << 16)
        except TimeoutError:
            raise TimeoutError(0, f"no answer within {self._timeout:g} s") from None
        self.received.extend(data)
        if len(self.received) > self._most:
            raise OSError(0, f"more than {self._most >> 20} MiB of answer")
        return bool(data)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _seconds_left(self) -> float:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


def http(
    address: tuple[str, int], question: str, timeout: float, most: int = MAX_BYTES, more: str = ""
) -> bytes:
    """The body of the answer to a question such as `GET /path`; `more`: further lines of the head.

    Raises `OSError`, also if the status is not 200."""
    with contextlib.closing(TimedConnection(address, timeout, most)) as connection:
        connection.send(f"{question} HTTP/1.0\r\nContent-Length: 0\r\n{more}\r\n".encode())
        while connection.receive():
            pass
        head, _, body = bytes(connection.received).partition(b"\r\n\r\n")
    if (status := head.split()[1:2]) != [b"200"]:
        said = status[0].decode("ascii", "replace")[:3] if status else "nothing"
        raise OSError(0, f"it refuses to answer ({said})")
    return body


def listeners(uid: int) -> Iterator[tuple[str, int, str]]:
    """Address, port and inode of every listening socket of a user; the loopback address if it
    listens on all addresses."""
    for one in all_listeners():
        if one.uid == uid:
            loopback = "127.0.0.1" if one.address.version == 4 else "::1"
            where = loopback if one.address.is_unspecified else str(one.address)
            yield where, one.port, one.inode
