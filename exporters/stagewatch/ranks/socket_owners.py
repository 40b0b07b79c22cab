"""Which sockets belong to which rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from stagewatch.host.process_files import socket_inodes
from stagewatch.ranks.index import RankKey

Members = Mapping[RankKey, tuple[int, ...]]


class SocketOwners:
    """Remembers owners, so that descriptors are looked through only for sockets not seen before.

    One round: `begin`, `is_wanted` for every socket there is, `owners` of those that were wanted.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._members: Members = {}
        self._owners: dict[int, RankKey] = {}
        self._foreign: set[int] = set()
        self._seen: set[int] = set()

    def begin(self, members: Members) -> None:
        """The ranks' processes as they are now; a new one may hold sockets seen before."""
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
                for inode in socket_inodes(self._proc, pid)
            }
        # Numbers are used again, so neither set remembers sockets that are closed.
        self._foreign = (self._foreign | (unknown - self._owners.keys())) & self._seen
        self._owners = {inode: key for inode, key in self._owners.items() if inode in self._seen}
        return {inode: self._owners[inode] for inode in inodes if inode in self._owners}
