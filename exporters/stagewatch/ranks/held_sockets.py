"""The TCP sockets that every rank holds, in any network namespace."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.host.guarded import Files
from stagewatch.ranks.families import ProcessFamilies
from stagewatch.ranks.model import RankKey
from stagewatch.ranks.socket_diag import LISTEN, STATES, NamespaceSockets, TcpSocket, dump, ended

Members = Mapping[RankKey, tuple[int, ...]]

_NUMBER = re.compile(rb"\d+")


class SocketOwners:
    """Remembers which rank holds a socket; searches descriptors only for sockets not seen before.

    A round is: `begin`, `is_wanted` for every socket, then `owners` of the wanted ones.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._members: Members = {}
        self._owners: dict[int, RankKey] = {}
        self._foreign: set[int] = set()
        self._seen: set[int] = set()
        self.denied: frozenset[int] = frozenset()
        """Processes whose descriptors we are not permitted to read."""

    def begin(self, members: Members) -> None:
        """Set the present processes of ranks; a new one may hold sockets seen before."""
        if dict(members) != self._members:
            self._members = dict(members)
            self._owners = {}
            self._foreign = set()
            self.denied = frozenset()
        self._seen = set()

    def is_wanted(self, inode: int) -> bool:
        """Whether a socket may belong to a rank."""
        self._seen.add(inode)
        return inode not in self._foreign

    def owners(self, inodes: Collection[int]) -> dict[int, RankKey]:
        """The owner of each of these sockets that a rank holds.

        Raises `SourceError` if the child that reads descriptors does not answer.
        """
        unknown = set(inodes) - self._owners.keys()
        if unknown:
            members = [pid for pids in self._members.values() for pid in pids]
            held = self._files.read("sockets", members)
            self.denied = frozenset(pid for pid, inodes in held.items() if inodes is None)
            self._owners = {
                int(inode): key
                for key, pids in self._members.items()
                for pid in pids
                for inode in (held.get(pid) or b"").split()
            }
            if held.keys() >= set(members):  # one that does not answer may hold any of them
                self._foreign |= unknown - self._owners.keys()
        # Numbers are used again, so neither set remembers sockets that are closed.
        self._foreign &= self._seen
        self._owners = {inode: key for inode, key in self._owners.items() if inode in self._seen}
        return {inode: self._owners[inode] for inode in inodes if inode in self._owners}


@dataclass(frozen=True, slots=True)
class SocketsLook:
    """The sockets of all ranks at one moment."""

    owned: Mapping[RankKey, list[TcpSocket]]
    """The sockets of live ranks."""
    unreadable: int
    """Number of namespaces that may not be entered."""
    denied: int
    """Processes of ranks whose namespace or descriptors may not be read."""
    places: Mapping[RankKey, int]
    """The network namespace of every rank, if it is known."""


class RankSockets:
    """Dumps the sockets of every network namespace with ranks, for all collectors that ask."""

    def __init__(
        self,
        families: ProcessFamilies,
        proc: Path,
        files: Files,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._families = families
        self._proc = proc
        self._clock = clock
        self._files = files
        self._places: dict[int, int] = {}
        """The namespace of each rank by its process."""
        self._sockets = NamespaceSockets(proc)
        self._owners = SocketOwners(files)
        self._lock = threading.Lock()
        self._last: tuple[float, SocketsLook] | None = None

    def look(self, fresh_for: float = 0.0) -> SocketsLook:
        """The sockets as they were at most so many seconds ago.

        Raises `SourceError` if the kernel refuses.
        """
        with self._lock:
            now = self._clock()
            if self._last is None or now - self._last[0] >= fresh_for:
                self._last = now, self._look()
            return self._last[1]

    def every(
        self, wanted: Callable[[int], bool] = lambda inode: True, *, listening: bool = False
    ) -> dict[int, list[TcpSocket]]:
        """The wanted sockets of all processes (with `listening`, only listening ones), by network
        namespace, as far as these may be entered."""
        states = (LISTEN,) if listening else STATES
        return self._in_each(lambda diag: dump(diag, wanted, states=states))

    def ended(self, seconds: float) -> dict[int, list[TcpSocket]]:
        """The ends that closed their connection first, within so many seconds, by network
        namespace."""
        return self._in_each(lambda diag: ended(diag, seconds))

    def _in_each(
        self, read: Callable[[socket.socket], list[TcpSocket]]
    ) -> dict[int, list[TcpSocket]]:
        found = {}
        with self._lock:
            for namespace, pid in self._namespaces().items():
                try:
                    found[namespace] = read(self._sockets.get(namespace, pid))
                except SourceError:
                    self._sockets.drop(namespace)
        return found

    def close(self) -> None:
        """Close the netlink sockets."""
        self._sockets.keep(())

    def _namespaces(self) -> dict[int, int]:
        """The namespaces with ranks, each with the process of a rank."""
        return {namespace: pid for pid, namespace in self._places.items()}

    def _learn_places(self, ranks: list[int]) -> set[int]:
        """Learn the namespaces of new ranks; returns the processes that hide theirs."""
        self._places = {pid: self._places[pid] for pid in ranks if pid in self._places}
        links = self._files.read("ns/net", [pid for pid in ranks if pid not in self._places])
        for pid, link in links.items():
            if number := _NUMBER.search(link or b""):  # net:[4026531840]
                self._places[pid] = int(number[0])
        return {pid for pid, link in links.items() if link is None}

    def _look(self) -> SocketsLook:
        members = self._families.look().members
        self._owners.begin(members)
        ranks = [pids[0] for pids in members.values()]
        hidden = self._learn_places(ranks)
        namespaces = self._namespaces()
        sockets: list[TcpSocket] = []
        unreadable = 0
        for namespace, pid in namespaces.items():
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
        owners = self._owners.owners([one.inode for one in sockets])
        owned: dict[RankKey, list[TcpSocket]] = {key: [] for key in members}
        for one in sockets:
            if one.inode in owners:
                owned[owners[one.inode]].append(one)
        places = {
            key: self._places[pids[0]] for key, pids in members.items() if pids[0] in self._places
        }
        return SocketsLook(owned, unreadable, len(self._owners.denied | hidden), places)
