"""The wait of one thread, in any call: passes it to the file that knows this kind of wait.

`Edges` holds the tables of one look, each read when first needed.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

from stagewatch.core.errors import SourceError
from stagewatch.core.words import printable
from stagewatch.host.procfs import ProcessStat, Procfs
from stagewatch.ranks.socket_diag import NamespaceSockets
from stagewatch.ranks.waits import children, file_locks, pipes, storage
from stagewatch.ranks.waits.events import PIDFD, Events
from stagewatch.ranks.waits.futexes import Futexes
from stagewatch.ranks.waits.holders import Holders
from stagewatch.ranks.waits.model import Kind, Mode, Wait
from stagewatch.ranks.waits.other_end import OtherEnd
from stagewatch.ranks.waits.several import Watched, choose, polled, watched
from stagewatch.ranks.waits.system_calls import Role
from stagewatch.ranks.waits.tcp import TcpTables
from stagewatch.ranks.waits.threads import Thread, read
from stagewatch.ranks.waits.unix_sockets import UnixSockets

MAX_WORDS = 300
MAX_TARGETS = 512
MAX_LOCKS_BYTES = 4 << 20
_EPOLL = "anon_inode:[eventpoll]"
_SOCKET = "socket:["

_VERBS = {
    Role.READ: "reads",
    Role.WRITE: "writes",
    Role.CONNECT: "opens",
    Role.FILE: "is in",
    Role.PATH: "is in",
    Role.DEVICE: "waits for",
}


class Edges:
    """Finds the other ends of waits on this node, at one moment."""

    def __init__(
        self,
        proc: Procfs,
        processes: Mapping[int, ProcessStat],
        first: Collection[int],
        has_time: Callable[[], bool],
    ) -> None:
        self._proc = proc
        self._processes = processes
        self._first = first
        self._children: dict[int, list[int]] = defaultdict(list)
        for pid, stat in processes.items():
            self._children[stat.parent].append(pid)
        self._namespaces = NamespaceSockets(proc.root)
        self.holders = Holders(proc, lambda: self._order, has_time)
        self.tcp = TcpTables(proc, self.holders, self._diag, lambda: processes)
        self._unix = UnixSockets(self.holders, self._diag)
        self._events = Events(self.holders)
        self._futexes = Futexes(proc, self._of_the_same_user)
        self._locks: bytes | None = None

    def close(self) -> None:
        """Close the netlink sockets."""
        self._namespaces.keep(())

    def wait(self, pid: int, thread: Thread) -> Wait | None:
        """The wait of a thread; `None` if it does not wait, or is stopped."""
        if thread.state in "RTtZX":
            return None
        call = thread.call
        if call is None:
            if thread.state != "D":
                return _wait(pid, thread, OtherEnd(Kind.OWN, "something", own=True))
            end = storage.other_end(self._proc, pid, "", "a page fault", thread.channel)
            return _wait(pid, thread, end)
        try:
            return self._in_call(pid, thread, call.role, thread.arguments)
        except (OSError, SourceError) as error:
            why = getattr(error, "strerror", "") or str(error)
            end = OtherEnd(Kind.OTHER, f"something that cannot be seen ({why})")
            return _wait(pid, thread, end)

    def _in_call(self, pid: int, thread: Thread, role: Role, arguments: tuple[int, ...]) -> Wait:
        first = children.signed(arguments[0])
        if role in (Role.POLL, Role.EPOLL, Role.SELECT):
            descriptors = self._watched(pid, role, arguments)
            if descriptors or role is Role.EPOLL:
                return self._several(pid, thread, descriptors)
            role = Role.SLEEP
        name = thread.call.name if thread.call else ""
        if role in (Role.READ, Role.WRITE, Role.CONNECT, Role.ACCEPT, Role.FILE, Role.DEVICE):
            end = self._descriptor(pid, first, thread, name, reads=role is not Role.WRITE)
        elif role is Role.PATH:
            end = storage.other_end(self._proc, pid, "", name, thread.channel)
        elif role is Role.FUTEX:
            end = self._futexes.other_end(pid, arguments[0], arguments[1], arguments[2])
        elif role in (Role.WAIT_PID, Role.WAIT_ID, Role.FORK):
            end = self._child(pid, role, first, arguments)
        elif role in (Role.FLOCK, Role.FCNTL):
            end = self._file_lock(pid, first)
        elif role is Role.SLEEP:
            end = OtherEnd(Kind.SLEEP, "sleeps in its own code")
        elif role is Role.SIGNAL:
            end = OtherEnd(Kind.OTHER, "a signal", listens=True)
        else:
            end = OtherEnd(Kind.OTHER, f"something, in {name}")
        return _wait(pid, thread, end)

    def _several(self, pid: int, thread: Thread, descriptors: Sequence[Watched]) -> Wait:
        ends = [self._end(pid, descriptor, reads=reads) for descriptor, reads in descriptors]
        choice = choose(ends)
        return Wait(
            pid=pid,
            thread=thread.task,
            kind=choice.kind,
            call=thread.call.name if thread.call else "",
            seconds_at_least=0.0,
            mode=choice.mode,
            targets=tuple(sorted(choice.pids)[:MAX_TARGETS]),
            witness=printable(f"waits for {choice.words}", MAX_WORDS),
            connections=choice.connections[:MAX_TARGETS],
            serves=bool(choice.ends) and all(end.accepted for end in choice.ends),
            unseen=any(end.unseen for end in choice.ends),
            writes=bool(descriptors) and not any(reads for _, reads in descriptors),
        )

    def _watched(self, pid: int, role: Role, arguments: tuple[int, ...]) -> list[Watched]:
        if role is Role.POLL:
            address, count = arguments[:2]
            found = self._proc.patiently(
                pid, lambda: polled(str(self._proc.root), pid, address, count)
            )
            if found is None and count:
                raise SourceError("the array of poll may not be read")
            return found or []
        if role is Role.SELECT:
            return [(arguments[0] - 1, True)] if 0 < arguments[0] <= 1 << 20 else []
        return watched(self.holders.information(pid, arguments[0]))

    def _end(self, pid: int, descriptor: int, *, reads: bool, depth: int = 0) -> OtherEnd:
        """The other end of one descriptor among several."""
        link = self.holders.link(pid, descriptor)
        if link != _EPOLL or depth:
            return self._of_link(pid, descriptor, link, reads=reads)
        inner = watched(self.holders.information(pid, descriptor))
        ends = [self._end(pid, one, reads=way, depth=1) for one, way in inner]
        choice = choose(ends)
        return OtherEnd(
            choice.kind,
            choice.words,
            frozenset(choice.pids),
            own=not choice.ends and choice.mode is not Mode.ANYBODY,
            listens=choice.mode is Mode.ANYBODY,
        )

    def _descriptor(
        self, pid: int, descriptor: int, thread: Thread, name: str, *, reads: bool
    ) -> OtherEnd:
        """The other end of the only descriptor of a call."""
        link = self.holders.link(pid, descriptor)
        if link.startswith("/dev/"):
            return OtherEnd(Kind.DEVICE, f"the driver of {link}", own=True)
        if link.startswith("/") and "pipe" not in thread.channel:
            return storage.other_end(self._proc, pid, link, name, thread.channel)
        return self._of_link(pid, descriptor, link, reads=reads)

    def _of_link(self, pid: int, descriptor: int, link: str, *, reads: bool) -> OtherEnd:
        if not link:
            return OtherEnd(Kind.OTHER, "a descriptor that may not be seen")
        if link.startswith("/dev/"):
            return OtherEnd(Kind.DEVICE, link, own=True)
        if link.startswith(("pipe:", "/")):
            return pipes.other_end(self.holders, pid, link, reads=reads)
        if link.startswith(_SOCKET):
            inode = int(link[len(_SOCKET) : -1])
            return (
                self._tcp_or_unix(pid, inode)
                or OtherEnd(Kind.OTHER, "a socket that is neither TCP nor Unix")
            )  # fmt: skip
        return self._events.other_end(pid, descriptor, link)

    def _tcp_or_unix(self, pid: int, inode: int) -> OtherEnd | None:
        """The other end of a socket; only TCP is known in a namespace that may not be entered."""
        found = self.tcp.other_end(pid, inode)
        return found if found is not None else self._unix.other_end(pid, inode)

    def _child(self, pid: int, role: Role, first: int, arguments: tuple[int, ...]) -> OtherEnd:
        mine = self._children.get(pid, [])
        number = -1 if role is Role.FORK else first
        if role is Role.WAIT_ID:
            chosen = children.signed(arguments[1])
            if first == children.P_PIDFD:
                return self._events.other_end(pid, chosen, PIDFD)
            number = {children.P_PID: chosen, children.P_PGID: -chosen}.get(first, -1)
        return children.other_end(self._proc, number, mine)

    def _file_lock(self, pid: int, descriptor: int) -> OtherEnd:
        if self._locks is None:
            self._locks = read(f"{self._proc.root}/locks", MAX_LOCKS_BYTES)
        return file_locks.other_end(
            self._locks, self.holders, pid, self.holders.link(pid, descriptor)
        )

    def _diag(self, pid: int) -> tuple[int, socket.socket]:
        namespace = self._proc.network_namespace(pid)
        if namespace is None:
            raise SourceError("its network namespace may not be seen")
        return namespace, self._namespaces.get(namespace, pid)

    @cached_property
    def _users(self) -> dict[int, int | None]:
        return {pid: self._proc.uid(pid) for pid in self._processes}

    @cached_property
    def _order(self) -> list[int]:
        """All processes: first the requested ones, then their descendants, then those of the same
        sessions, then those of the same users, then the others; the youngest first."""
        kin = dict.fromkeys(pid for pid in self._first if pid in self._processes)
        waiting = list(kin)
        while waiting:
            mine = [pid for pid in self._children.get(waiting.pop(), ()) if pid not in kin]
            kin |= dict.fromkeys(mine)
            waiting += mine
        sessions = {self._processes[pid].session for pid in kin}
        users = {self._users[pid] for pid in kin}
        others = sorted(
            self._processes.keys() - kin.keys(),
            key=lambda pid: (
                self._processes[pid].session not in sessions,
                self._users[pid] not in users,
                -self._processes[pid].start_ticks,
            ),
        )
        return [*kin, *others]

    def _of_the_same_user(self, pid: int) -> list[int]:
        return [other for other in self._order if self._users[other] == self._users.get(pid)]


def _wait(pid: int, thread: Thread, end: OtherEnd) -> Wait:
    """The wait for one end, which any of its holders may end."""
    role = thread.call.role if thread.call else Role.OTHER
    if end.kind is Kind.SLEEP:
        witness = end.words
    elif end.kind is Kind.STORAGE:
        witness = f"is in {end.words}"
    else:
        verb = "waits for" if end.listens else _VERBS.get(role, "waits for")
        witness = f"{verb} {end.words}"
    held_by_all = end.kind is Kind.LOCK or len(end.pids) <= 1
    return Wait(
        pid=pid,
        thread=thread.task,
        kind=end.kind,
        call=thread.call.name if thread.call else "",
        seconds_at_least=0.0,
        mode=Mode.ANYBODY if end.listens else Mode.ALL if held_by_all else Mode.ANY,
        targets=tuple(sorted(end.pids)[:MAX_TARGETS]),
        witness=printable(witness, MAX_WORDS),
        connections=(end.connection,) if end.connection else (),
        serves=end.accepted,
        unseen=end.unseen,
        writes=role is Role.WRITE,
    )
