"""TCP sockets of any network namespace, with the kernel's statistics; see sock_diag(7).

This module parses the answers itself, since it needs only a few fields of the few sockets of ranks:
that takes a tenth of pyroute2's time and none of its memory.  The layouts are `struct
inet_diag_msg` in linux/inet_diag.h and `struct tcp_info` in linux/tcp.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.descriptors import closing
from stagewatch.core.errors import SourceError

ENTER_SECONDS = 2.0
"""Timeout for entering a network namespace."""

STATES = {
    1: "established",
    2: "syn_sent",
    4: "fin_wait1",
    5: "fin_wait2",
    7: "close",
    8: "close_wait",
    9: "last_ack",
    10: "listen",
    11: "closing",
}
"""All but TIME_WAIT and SYN_RECV, which belong to no process."""
LISTEN = 10
TIME_WAIT, TIME_WAIT_SECONDS = 6, 60.0

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE, _ERROR = 3, 2
_INFO = 2  # INET_DIAG_INFO
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48s")
_MESSAGE = struct.Struct("=BBxxHH16s16s4xQ4xII8x")
"""family, state, local and peer port (big-endian) and address, cookie, receive and send queue"""
_INODE = struct.Struct("=I")
_INODE_AT = 68
_EXPIRES = struct.Struct("=I")
"""In milliseconds."""
_EXPIRES_AT = 52
_ATTRIBUTE = struct.Struct("=HH")
_TCP_INFO = struct.Struct("=44xI4xI12xI28xI16xQQ16xII")
"""last_data_sent, last_data_recv, rtt, total_retrans, bytes_acked, bytes_received,
data_segs_in, data_segs_out"""


@dataclass(frozen=True, slots=True)
class TcpStatistics:
    """The kernel's statistics of a connection."""

    last_received: float
    """Seconds since data came in, or since the connection began."""
    rtt: float
    """Smoothed round trip time in seconds."""
    retransmissions: int
    bytes_acknowledged: int
    bytes_received: int
    data_segments_sent: int
    """Retransmissions included."""
    data_segments_received: int = 0
    last_sent: float = 0.0
    """Seconds since data was sent, or since the connection began."""


@dataclass(frozen=True, slots=True)
class TcpSocket:
    """One socket; the queues of a listening socket are waiting connections and their limit."""

    state: str
    local_port: int
    peer_port: int
    cookie: int
    """Never used again for another socket."""
    receive_queue: int
    send_queue: int
    inode: int
    statistics: TcpStatistics | None
    local_address: bytes = b""
    """16 bytes in network order; for IPv4, the first four count."""
    peer_address: bytes = b""
    family: int = 0


def open_diag() -> socket.socket:
    """A netlink socket for the network namespace of the calling thread."""
    try:
        diag = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
        )
    except OSError as error:
        raise SourceError(f"no socket diagnostics: {error.strerror}") from error
    diag.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    diag.settimeout(5.0)  # the kernel answers at once or not at all
    return diag


def dump(
    diag: socket.socket,
    wanted: Callable[[int], bool] = lambda inode: True,
    *,
    states: Iterable[int] = STATES,
) -> list[TcpSocket]:
    """Every TCP socket in one of these states, v4 and v6, for which `wanted(inode)` holds.

    Raises `SourceError` if the kernel refuses; then the netlink socket cannot be used any more.
    """
    sockets: list[TcpSocket] = []
    for data, body, end in _sockets(diag, states):
        [inode] = _INODE.unpack_from(data, body + _INODE_AT)
        if inode and wanted(inode):
            sockets.append(_socket(data, body, end, inode))
    return sockets


def ended(diag: socket.socket, seconds: float) -> list[TcpSocket]:
    """The ends that closed their connection first, within so many seconds; they have no process.

    Raises `SourceError` as `dump` does.
    """
    least = (TIME_WAIT_SECONDS - seconds) * 1000
    return [
        _socket(data, body, end, 0)
        for data, body, end in _sockets(diag, (TIME_WAIT,))
        if _EXPIRES.unpack_from(data, body + _EXPIRES_AT)[0] >= least
    ]


def _sockets(diag: socket.socket, states: Iterable[int]) -> Iterator[tuple[bytes, int, int]]:
    """The kernel's messages on TCP sockets in these states, v4 and v6."""
    chosen = sum(1 << state for state in states)
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), chosen, bytes(48))
        for data, body, end in answers(diag, request):
            if end - body >= _MESSAGE.size:
                yield data, body, end


def answers(diag: socket.socket, request: bytes) -> Iterator[tuple[bytes, int, int]]:
    """What the kernel answers to a request for sockets of a family: bytes, and where in them one
    message begins and ends.

    Raises `SourceError` if the kernel refuses; then the netlink socket cannot be used any more.
    """
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 0, 0)
    try:
        diag.send(header + request)
        yield from _answers(diag)
    except OSError as error:
        raise SourceError(f"socket diagnostics: {error}") from error


def _answers(diag: socket.socket) -> Iterator[tuple[bytes, int, int]]:
    while True:
        data = diag.recv(1 << 16)  # netlink fills at most 32 KiB at a time
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, at)
            if length < _HEADER.size:
                return
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, at + _HEADER.size)[0]
                if code in (0, 2):  # ENOENT: no such family in this kernel
                    return
                raise OSError(code, os.strerror(code))
            yield data, at + _HEADER.size, at + length
            at += length + 3 & ~3


def attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The attributes behind a message: type, begin and end of each."""
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, at + _ATTRIBUTE.size, min(at + length, end)
        at += length + 3 & ~3


def _socket(data: bytes, body: int, end: int, inode: int) -> TcpSocket:
    family, state, local, peer, local_address, peer_address, cookie, received, to_send = (
        _MESSAGE.unpack_from(data, body)
    )
    statistics = None
    for kind, at, to in attributes(data, body + _MESSAGE.size, end):
        if kind == _INFO and to - at >= _TCP_INFO.size:
            statistics = _statistics(data, at)
            break
    return TcpSocket(
        state=STATES.get(state, str(state)),
        local_port=socket.ntohs(local),
        peer_port=socket.ntohs(peer),
        cookie=cookie,
        receive_queue=received,
        send_queue=to_send,
        inode=inode,
        statistics=statistics,
        local_address=local_address,
        peer_address=peer_address,
        family=family,
    )


def _statistics(data: bytes, at: int) -> TcpStatistics:
    last_sent, last_received, rtt, repeats, acked, got, segments_in, segments_out = (
        _TCP_INFO.unpack_from(data, at)
    )
    return TcpStatistics(
        last_received / 1e3,
        rtt / 1e6,
        repeats,
        acked,
        got,
        segments_out,
        segments_in,
        last_sent / 1e3,
    )


def own_namespace(proc: Path) -> int | None:
    """The inode of this process's network namespace; `None` if it is hidden."""
    with contextlib.suppress(OSError):
        return (proc / "self/ns/net").stat().st_ino
    return None


class NamespaceSockets:
    """One netlink socket for each network namespace, such as a container's, that has ranks.

    A socket belongs to the namespace it was made in.  To make one elsewhere, a thread enters that
    namespace (which needs CAP_SYS_ADMIN) and ends there; no other thread is touched.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._own = own_namespace(proc)
        self._sockets: dict[int, socket.socket] = {}

    def get(self, namespace: int, pid: int) -> socket.socket:
        """The netlink socket in a namespace, which is that of `pid`.  Raises `SourceError`."""
        if namespace not in self._sockets:
            made = open_diag() if namespace == self._own else self._make_in(pid)
            self._sockets[namespace] = made
        return self._sockets[namespace]

    def drop(self, namespace: int) -> None:
        """Close a socket that no longer works."""
        if namespace in self._sockets:
            self._sockets.pop(namespace).close()

    def keep(self, namespaces: Iterable[int]) -> None:
        """Close all but these: an open socket would keep a namespace alive after its container."""
        for namespace in self._sockets.keys() - set(namespaces):
            self.drop(namespace)

    def _make_in(self, pid: int) -> socket.socket:
        made: list[socket.socket] = []
        errors: list[Exception] = []

        def enter_and_make() -> None:
            try:
                namespace = os.open(f"{self._proc}/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                with closing(namespace):
                    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                made.append(open_diag())
            except (OSError, SourceError) as error:
                errors.append(error)

        thread = threading.Thread(target=enter_and_make, name="enter-namespace", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the limit of threads
            raise SourceError(f"network namespace of process {pid}: {error}") from error
        thread.join(ENTER_SECONDS)
        if not made:
            why = errors[0] if errors else None
            reason = why or "it does not answer"
            raise SourceError(f"network namespace of process {pid}: {reason}") from why
        return made[0]
