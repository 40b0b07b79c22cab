"""The TCP sockets that every rank holds, in whatever network namespace it lives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.host.procfs import Procfs
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.model import RankKey
from stagewatch.ranks.socket_diag import NamespaceSockets, TcpSocket, dump, namespace_of

MAX_DESCRIPTORS = 65_536
"""Descriptors looked at of one process."""
SEARCH_SECONDS = 2.0
"""How long that may take."""

Members = Mapping[RankKey, tuple[int, ...]]

_SOCKET = "socket:["


class SocketOwners:
    """Remembers which rank holds a socket; searches descriptors only for sockets not seen before.

    One round: `begin`, `is_wanted` for every socket there is, `owners` of those that were wanted.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._members: Members = {}
        self._owners: dict[int, RankKey] = {}
        self._foreign: set[int] = set()
        self._seen: set[int] = set()

    def begin(self, members: Members) -> None:
        """Take the ranks' processes as they are now; a new one may hold sockets seen before."""
        if dict(members) != self._members:
            self._members = dict(members)
            self._owners = {}
            self._foreign = set()
        self._seen = set()

    def is_wanted(self, inode: int) -> bool:
        """Whether a socket may belong to a rank."""
        self._seen.add(inode)
        return inode not in self._foreign

    def owners(self, inodes: Collection[int]) -> dict[int, RankKey]:
        """The owner of each of these sockets that a rank holds."""
        unknown = set(inodes) - self._owners.keys()
        if unknown:
            self._owners = {
                inode: key
                for key, pids in self._members.items()
                for pid in pids
                for inode in _patient_inodes(self._proc, pid)
            }
        # Numbers are used again, so neither set remembers sockets that are closed.
        self._foreign = (self._foreign | (unknown - self._owners.keys())) & self._seen
        self._owners = {inode: key for inode, key in self._owners.items() if inode in self._seen}
        return {inode: self._owners[inode] for inode in inodes if inode in self._owners}


@dataclass(frozen=True, slots=True)
class SocketsLook:
    """The sockets at one moment."""

    owned: Mapping[RankKey, list[TcpSocket]]
    """Those of every rank that lives."""
    overflows: Mapping[str, int | None]
    """Connections dropped since a listening queue was full, by network namespace."""
    unreadable: int
    """Namespaces that may not be entered."""


class RankSockets:
    """Dumps the sockets of every network namespace with ranks, for all collectors that ask."""

    def __init__(
        self,
        families: ProcessFamilies,
        proc: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._families = families
        self._proc = proc
        self._clock = clock
        self._sockets = NamespaceSockets(proc)
        self._owners = SocketOwners(proc)
        self._lock = threading.Lock()
        self._last: tuple[float, SocketsLook] | None = None

    def look(self, fresh_for: float = 0.0) -> SocketsLook:
        """The sockets as they were at most so many seconds ago.

        Raises `SourceError` where the kernel does not tell them.
        """
        with self._lock:
            now = self._clock()
            if self._last is None or now - self._last[0] >= fresh_for:
                self._last = now, self._look()
            return self._last[1]

    def close(self) -> None:
        """Close the netlink sockets."""
        self._sockets.keep(())

    def _look(self) -> SocketsLook:
        members = self._families.look().members
        self._owners.begin(members)
        ranks = [pids[0] for pids in members.values()]
        places = Procfs(self._proc).network_namespaces(ranks)
        namespaces = {namespace: pid for pid, namespace in places.items()}
        overflows = {"host": listen_overflows(self._proc, "self")}
        own = namespace_of(self._proc, "self")
        sockets: list[TcpSocket] = []
        unreadable = 0
        for namespace, pid in namespaces.items():
            if namespace != own:
                overflows[str(namespace)] = listen_overflows(self._proc, pid)
            try:
                diag = self._sockets.get(namespace, pid)
            except SourceError:
                unreadable += 1
                continue
            try:
                sockets += dump(diag, self._owners.is_wanted)
            except SourceError:
                self._sockets.drop(namespace)
                raise
        self._sockets.keep(namespaces)
        owners = self._owners.owners([socket.inode for socket in sockets])
        owned: dict[RankKey, list[TcpSocket]] = {key: [] for key in members}
        for socket in sockets:
            if socket.inode in owners:
                owned[owners[socket.inode]].append(socket)
        return SocketsLook(owned, overflows, unreadable)


def listen_overflows(proc: Path, pid: int | str) -> int | None:
    """Connections dropped because nobody accepted them in time; `None` where it cannot be read.

    ListenOverflows of a process's network namespace, in `/proc/<pid>/net/netstat`: pairs of lines,
    names above numbers.
    """
    try:
        lines = (proc / str(pid) / "net" / "netstat").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    for names, numbers in zip(lines[::2], lines[1::2], strict=False):
        counters = dict(zip(names.split(), numbers.split(), strict=False))
        value = counters.get("ListenOverflows", "")
        if value.isdecimal():
            return int(value)
    return None


def _patient_inodes(proc: Path, pid: int) -> list[int]:
    return Procfs(proc).patiently(pid, lambda: _socket_inodes(proc, pid), SEARCH_SECONDS) or []


def _socket_inodes(proc: Path, pid: int) -> list[int]:
    """The sockets a process holds open; empty if it is gone or hidden."""
    directory = f"{proc}/{pid}/fd"
    inodes = []
    try:
        names = os.listdir(directory)  # noqa: PTH208 - thousands of names
    except OSError:
        return []
    for name in names[:MAX_DESCRIPTORS]:
        try:
            target = os.readlink(f"{directory}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith(_SOCKET):
            inodes.append(int(target[len(_SOCKET) : -1]))
    return inodes
