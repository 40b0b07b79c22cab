"""Unix sockets: who holds the peer of one, by the kernel's socket diagnostics.

See `struct unix_diag_msg` in linux/unix_diag.h and sock_diag(7).
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from stagewatch.ranks.socket_diag import answers, attributes
from stagewatch.ranks.waits.holders import Holders
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids

MAX_SOCKETS = 65_536

_REQUEST = struct.Struct("=BBxxIIIII")
"""family, protocol, states, inode, what to show, cookie"""
_MESSAGE = struct.Struct("=BBBxIII")
"""family, type, state, inode, cookie"""
_SHOW = 0x1 | 0x4 | 0x8 | 0x10  # name, peer, pending connections, queues
_NAME, _PEER, _ICONS, _QUEUES = 0, 2, 3, 4
_LISTEN = 10


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """One socket."""

    inode: int
    listens: bool = False
    name: bytes = b""
    peer: int = 0
    pending: tuple[int, ...] = ()
    """For a listening socket, the inodes of connections that it has not accepted yet."""
    unread: int = 0
    """Bytes, or connections that wait to be accepted."""


def dump(diag: socket.socket) -> dict[int, UnixSocket]:
    """The sockets of a network namespace by inode.  Raises `SourceError`."""
    request = _REQUEST.pack(socket.AF_UNIX, 0, 0xFFFFFFFF, 0, _SHOW, 0xFFFFFFFF, 0xFFFFFFFF)
    found: dict[int, UnixSocket] = {}
    for data, body, end in answers(diag, request):
        if end - body >= _MESSAGE.size and len(found) < MAX_SOCKETS:
            one = _socket(data, body, end)
            found[one.inode] = one
    return found


def _socket(data: bytes, body: int, end: int) -> UnixSocket:
    _, _, state, inode, _, _ = _MESSAGE.unpack_from(data, body)
    values = {kind: data[at:to] for kind, at, to in attributes(data, body + _MESSAGE.size, end)}
    icons = values.get(_ICONS, b"")
    return UnixSocket(
        inode,
        listens=state == _LISTEN,
        name=values.get(_NAME, b""),
        peer=int.from_bytes(values.get(_PEER, b"")[:4], sys.byteorder),
        pending=struct.unpack(f"={len(icons) // 4}I", icons[: len(icons) // 4 * 4]),
        unread=int.from_bytes(values.get(_QUEUES, b"")[:4], sys.byteorder),
    )


class UnixSockets:
    """The sockets of each network namespace, read when first asked for."""

    def __init__(self, holders: Holders, diag: Callable[[int], tuple[int, socket.socket]]) -> None:
        self._holders = holders
        self._diag = diag
        """The namespace of a process, and a netlink socket in it; raises `SourceError`."""
        self._tables: dict[int, dict[int, UnixSocket]] = {}
        self._pending: dict[int, dict[int, int]] = {}

    def other_end(self, pid: int, inode: int) -> OtherEnd | None:
        """The processes that hold the peer of a process's socket; `None` if it is no Unix socket.

        Raises `SourceError` if the sockets may not be read.
        """
        namespace, diag = self._diag(pid)
        if namespace not in self._tables:
            table = self._tables[namespace] = dump(diag)
            self._pending[namespace] = {
                client: one.inode for one in table.values() for client in one.pending
            }
        table = self._tables[namespace]
        mine = table.get(inode)
        if mine is None:
            return None
        if mine.listens:
            return OtherEnd(Kind.ACCEPT, "whoever connects to its Unix socket", listens=True)
        if listener := self._pending[namespace].get(inode):
            pids = frozenset(self._holders.pids_of(f"socket:[{listener}]")) - {pid}
            words = f"a Unix socket that {name_pids(pids)} has not accepted" if pids else ""
            return OtherEnd(Kind.UNIX, words or "a Unix socket that nobody accepts", pids)
        found = self._holders.pids_of(f"socket:[{mine.peer}]") if mine.peer else set()
        others = frozenset(found - {pid})
        peer = table.get(mine.peer)
        accepted = bool(mine.name) and (peer is None or not peer.name)
        if others:
            words = f"a Unix socket to {name_pids(others)}"
            return OtherEnd(Kind.UNIX, words, others, accepted=accepted)
        if pid in found:
            return OtherEnd(Kind.UNIX, "a Unix socket of its own", own=True)
        return OtherEnd(Kind.UNIX, "a Unix socket whose peer cannot be seen")
