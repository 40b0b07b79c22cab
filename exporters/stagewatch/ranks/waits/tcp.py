"""TCP connections: who holds the other end on this node, else its address; and who owes an answer.

The tables come from the kernel's socket diagnostics.  For a network namespace that may not be
entered (that takes CAP_SYS_ADMIN), they come from `/proc/PID/net/tcp`, which has no times; see
proc_pid_net(5).
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial

from stagewatch.core.errors import SourceError
from stagewatch.core.words import duration, size
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.socket_diag import STATES, TcpSocket, TcpStatistics, dump
from stagewatch.ranks.waits.holders import Holders
from stagewatch.ranks.waits.model import Connection, Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids
from stagewatch.ranks.waits.threads import read

MAX_NAMESPACES = 64
"""The most network namespaces that are searched for the other end of a connection."""
MAX_TABLE_BYTES = 16 << 20
MAX_OF_PROCESS = 64
"""The most connections of one process that are shown."""

Address = tuple[bytes, int]
"""4 or 16 bytes, and the port."""

HANDSHAKE_BYTES, HANDSHAKE_SEGMENTS = 512, 4
ONE_WAY_SEGMENTS = 12
"""A connection with so many sent segments, and no more than a handshake back, is one-way."""


class Table:
    """The sockets of one network namespace."""

    def __init__(self, sockets: Iterable[TcpSocket]) -> None:
        self.by_inode = {one.inode: one for one in sockets if one.inode}
        self._listeners: dict[int, list[TcpSocket]] = {}
        for one in self.by_inode.values():
            if one.state == "listen":
                self._listeners.setdefault(one.local_port, []).append(one)

    @cached_property
    def by_addresses(self) -> dict[tuple[Address, Address], TcpSocket]:
        """The connected sockets, by their local and remote addresses."""
        connected = (one for one in self.by_inode.values() if one.state != "listen")
        return {(local(one), remote(one)): one for one in connected}

    @cached_property
    def addresses(self) -> frozenset[bytes]:
        """The local addresses that connections have."""
        return frozenset(ends[0][0] for ends in self.by_addresses)

    def listeners(self, at: Address) -> list[TcpSocket]:
        """The listening sockets that accept connections to an address."""
        address, port = at
        return [one for one in self._listeners.get(port, ()) if local(one)[0] in (address, b"")]


class TcpTables:
    """The tables of the node's network namespaces, each read when first asked for."""

    def __init__(
        self,
        proc: Procfs,
        holders: Holders,
        diag: Callable[[int], tuple[int, socket.socket]],
        pids: Callable[[], Iterable[int]],
    ) -> None:
        self._proc = proc
        self._holders = holders
        self._diag = diag
        """The namespace of a process, and a netlink socket in it; raises `SourceError`."""
        self._pids = pids
        self._tables: dict[int, Table] = {}

    def other_end(self, pid: int, inode: int) -> OtherEnd | None:
        """The other end of a process's socket; `None` if it is no TCP socket.

        Raises `SourceError` if the sockets may not be read.
        """
        table = self.table(pid)
        mine = table.by_inode.get(inode)
        if mine is None:
            return None
        if mine.state == "listen":
            words = f"whoever connects to port {mine.local_port}"
            return OtherEnd(Kind.ACCEPT, words, listens=True)
        inodes, waits_to_be_accepted = self._peers(mine, table)
        found = {holder for one in inodes for holder in self._holders.pids_of(f"socket:[{one}]")}
        others = frozenset(found - {pid})
        if found and not others:
            return OtherEnd(Kind.TCP, "a connection of its own", own=True)
        connection = describe(mine, accepted=bool(table.listeners(local(mine))))
        connection = replace(connection, holders=tuple(sorted(others)))
        return OtherEnd(
            Kind.TCP,
            _words(connection, mine, accepting=waits_to_be_accepted),
            others,
            accepted=connection.accepted,
            weak=mine.state == "established" and not connection.owed and not mine.send_queue,
            connection=connection,
        )

    def held(self, local_end: str, remote_end: str) -> list[Connection]:
        """The ends on this node of a connection with these addresses, and their holders.

        A connection that is not accepted yet is held by the listening processes.
        """
        found = []
        for table in self._all():
            for one in table.by_addresses.values():
                if (text(local(one)), text(remote(one))) == (local_end, remote_end):
                    owners = self._holders.pids_of(f"socket:[{one.inode}]")
                    accepted = bool(table.listeners(local(one)))
                    mine = describe(one, accepted=accepted)
                    found.append(replace(mine, owners=tuple(sorted(owners))))
            if not found and (at := parse(local_end)) and at[0] in table.addresses:
                listening = [f"socket:[{one.inode}]" for one in table.listeners(at)]
                pids = {pid for link in listening for pid in self._holders.pids_of(link)}
                if pids:
                    held = tuple(sorted(pids))
                    found.append(Connection(local_end, remote_end, owners=held, accepted=True))
        return found

    def of(self, pid: int) -> list[Connection]:
        """The connections of a process to other nodes; first those on which it may owe an answer.

        Raises `SourceError`."""
        table = self.table(pid)
        found = []
        for one in table.by_addresses.values():
            address = remote(one)[0]
            away = not is_loopback(address) and address not in table.addresses
            if away and pid in self._holders.pids_of(f"socket:[{one.inode}]"):
                mine = describe(one, accepted=bool(table.listeners(local(one))))
                found.append(replace(mine, owners=(pid,)))
        return sorted(found, key=lambda one: one.owed)[:MAX_OF_PROCESS]

    def table(self, pid: int) -> Table:
        """The table of a process's namespace.  Raises `SourceError`."""
        namespace = self._proc.network_namespace(pid)
        if namespace is None:
            raise SourceError("its network namespace may not be seen")
        if namespace not in self._tables:
            self._tables[namespace] = Table(self._read(pid))
        return self._tables[namespace]

    def _read(self, pid: int) -> list[TcpSocket]:
        try:
            return dump(self._diag(pid)[1])
        except SourceError:
            pass
        sockets = []
        for name in ("tcp", "tcp6"):
            path = f"{self._proc.root}/{pid}/net/{name}"
            raw = self._proc.patiently(pid, partial(read, path, MAX_TABLE_BYTES))
            if raw is None:
                raise SourceError("the sockets of its network namespace may not be read")
            sockets += parse_table(raw)
        return sockets

    def _peers(self, mine: TcpSocket, table: Table) -> tuple[list[int], bool]:
        """The inodes at the other end, and whether they have yet to accept this connection."""
        here, there = local(mine), remote(mine)
        if peer := table.by_addresses.get((there, here)):
            return [peer.inode], False
        own = is_loopback(there[0]) or there[0] in table.addresses
        for other in [table] if own else self._all():
            if other is not table and (peer := other.by_addresses.get((there, here))):
                return [peer.inode], False
            if (own or there[0] in other.addresses) and (found := other.listeners(there)):
                return [one.inode for one in found], True
        return [], False

    def _all(self) -> list[Table]:
        """The tables of all processes, as far as they may be read."""
        for pid, namespace in self._proc.network_namespaces(self._pids()).items():
            if namespace not in self._tables and len(self._tables) < MAX_NAMESPACES:
                try:
                    self._tables[namespace] = Table(self._read(pid))
                except SourceError:
                    self._tables[namespace] = Table(())
        return list(self._tables.values())


def describe(mine: TcpSocket, *, accepted: bool) -> Connection:
    """A socket as a connection, without holders."""
    statistics = mine.statistics
    owed = mine.receive_queue == 0 and statistics is not None and _asked_last(statistics)
    return Connection(
        text(local(mine)),
        text(remote(mine)),
        accepted=accepted,
        owed=owed,
        unread=mine.receive_queue,
        unsent=mine.send_queue,
        sent_seconds=statistics.last_sent if statistics and statistics.data_segments_sent else None,
    )


def _asked_last(statistics: TcpStatistics) -> bool:
    """Whether the last data was sent and not received, on a connection that goes both ways."""
    one_way = (
        statistics.data_segments_sent >= ONE_WAY_SEGMENTS
        and 0 < statistics.data_segments_received <= HANDSHAKE_SEGMENTS
        and statistics.bytes_received <= HANDSHAKE_BYTES
    )
    if one_way or not statistics.data_segments_sent:
        return False
    if statistics.last_sent == statistics.last_received:  # by a clock of some milliseconds
        return statistics.data_segments_sent > statistics.data_segments_received
    return statistics.last_sent < statistics.last_received


def _words(connection: Connection, mine: TcpSocket, *, accepting: bool) -> str:
    way = "from" if connection.accepted else "to"
    if connection.holders:
        words = f"a TCP connection {way} {name_pids(connection.holders)}"
    elif is_loopback(remote(mine)[0]):
        words = "a TCP connection within this node, whose other end cannot be seen"
    else:
        words = f"a TCP connection {way} {connection.remote}"
    if accepting and connection.holders:
        return f"{words}, which has not accepted it"
    if connection.unsent:
        return f"{words}, which has not taken {size(connection.unsent)}"
    if connection.owed and connection.sent_seconds is not None:
        what = "from which nothing has come" if connection.accepted else "which has not answered"
        return f"{words}, {what} for {duration(connection.sent_seconds)}"
    return words


def local(one: TcpSocket) -> Address:
    """The local end of a socket; an empty address stands for all."""
    return _address(one.family, one.local_address), one.local_port


def remote(one: TcpSocket) -> Address:
    """The remote end of a socket."""
    return _address(one.family, one.peer_address), one.peer_port


def _address(family: int, raw: bytes) -> bytes:
    """An address in its only form: IPv4 within IPv6 becomes IPv4."""
    if family == socket.AF_INET:
        raw = raw[:4]
    elif raw.startswith(_MAPPED):
        raw = raw[len(_MAPPED) :]
    return raw if any(raw) else b""


_MAPPED = bytes(10) + b"\xff\xff"


def is_loopback(address: bytes) -> bool:
    """Whether an address is of its own node alone."""
    return (address[:1] == b"\x7f" and len(address) == 4) or address == bytes(15) + b"\1"


def text(at: Address) -> str:
    """`10.0.0.1:443` or `[fd00::1]:443`."""
    address, port = at
    shown = str(ipaddress.ip_address(address)) if address else "*"
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def parse(shown: str) -> Address | None:
    """The address that `text` has written."""
    address, _, port = shown.rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]")).packed, int(port)
    except ValueError:
        return None


def parse_table(raw: bytes) -> list[TcpSocket]:
    """The lines of `/proc/PID/net/tcp` or `tcp6` that belong to a process."""
    sockets = []
    for line in raw.decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        try:
            here, there, state = words[1], words[2], STATES.get(int(words[3], 16))
            to_send, _, received = words[4].partition(":")
            inode = int(words[9])
            (family, address, port), (_, other, other_port) = (
                _hexadecimal(here),
                _hexadecimal(there),
            )
            queues = int(received, 16), int(to_send, 16)
        except (ValueError, IndexError):
            continue
        if state and inode:
            sockets.append(
                TcpSocket(state, port, other_port, 0, *queues, inode, None, address, other, family)
            )
    return sockets


def _hexadecimal(shown: str) -> tuple[int, bytes, int]:
    """Family, address and port of an end as the kernel prints it: words of 32 bits in the order of
    this machine."""
    address, _, port = shown.partition(":")
    raw = bytes.fromhex(address)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    return family, raw, int(port, 16)
