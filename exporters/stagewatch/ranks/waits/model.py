"""Processes, what their threads wait for and who holds the other end; and JSON both ways.

What is decoded may come from an agent of another node or from a file: every value is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from stagewatch.core.state_file import decode


class State(str, Enum):
    """What a process does, by the thread that counts."""

    RUNNING = "running"
    """It runs, or used a good part of a core between the two looks."""
    WAITING = "waiting"
    """It waits for another process, or for whoever may come."""
    INWARD = "inward"
    """It waits for itself alone: for a lock, a pipe or an event between its own threads."""
    SLEEPING = "sleeping"
    """It sleeps in its own code, for one time that lasts longer than both looks."""
    RETRYING = "retrying"
    """It sleeps in its own code, again and again for short times."""
    STORAGE = "storage"
    """It is in a call to a file system."""
    STOPPED = "stopped"
    """A signal has stopped it, or a debugger holds it."""
    ZOMBIE = "zombie"
    """It has ended, and its parent has not fetched its status."""
    GONE = "gone"
    """It ended before both looks were done."""
    UNKNOWN = "unknown"
    """It may not be seen, or did something else at each look."""


class Mode(str, Enum):
    """Which of its targets end a wait."""

    ALL = "all"
    ANY = "any"
    """Whichever of them acts first."""
    ANYBODY = "anybody"
    """A server's wait for the next request: whoever comes, its present clients included."""


class Kind(str, Enum):
    """What a wait is for."""

    PIPE = "pipe"
    UNIX = "unix"
    TCP = "tcp"
    SEVERAL = "several"
    """Several descriptors at once, by poll, select or epoll."""
    FUTEX = "futex"
    """A lock, a semaphore or a condition in memory that processes share."""
    OWN = "own"
    """A lock or an event of its own threads."""
    CHILD = "child"
    """The end of a child."""
    LOCK = "lock"
    """A lock of a file."""
    STORAGE = "storage"
    SLEEP = "sleep"
    ACCEPT = "accept"
    """The next connection."""
    DEVICE = "device"
    """A driver or a terminal."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Connection:
    """A TCP connection, as one end of it sees it."""

    local: str
    """Address and port, `10.0.0.1:443` or `[fd00::1]:443`."""
    remote: str
    holders: tuple[int, ...] = ()
    """The processes of this node that hold the remote end."""
    owners: tuple[int, ...] = ()
    """The processes of this node that hold the local end."""
    accepted: bool = False
    """Whether the remote end has opened it."""
    owed: bool = False
    """Whether the last data went to the remote end, so that it owes an answer."""
    unread: int = 0
    """Bytes that have come in and that nobody has read."""
    unsent: int = 0
    """Bytes written that the remote end has not taken."""
    sent_seconds: float | None = None
    """Seconds since data was last sent; `None` where that is not known, or never was."""

    @property
    def leaves(self) -> bool:
        """Whether its other end is not on this node, as far as can be seen."""
        return not self.holders and not self.remote.startswith(("127.", "[::1]"))


@dataclass(frozen=True, slots=True)
class Wait:
    """What one thread waits for, or several alike of one process."""

    pid: int
    thread: int
    kind: Kind
    call: str
    """The system call; the kernel's function where the call may not be read."""
    seconds_at_least: float
    """How long it has been in one call of that kind at least; 0 if it came back to it in
    between."""
    mode: Mode = Mode.ALL
    targets: tuple[int, ...] = ()
    """Processes of this node."""
    witness: str = ""
    """In words, to be read after the name of the process."""
    connections: tuple[Connection, ...] = ()
    serves: bool = False
    """Whether those who hold the other end have connected to it, as clients do to a server."""
    unseen: bool = False
    """Whether nothing can be seen of the one that it waits for."""
    writes: bool = False
    """Whether it has something to send, and waits for nothing that comes in."""
    alike: int = 1
    """Threads of the process that wait so."""

    @property
    def remotes(self) -> tuple[Connection, ...]:
        """The connections whose other end is not on this node."""
        return tuple(one for one in self.connections if one.leaves)

    @property
    def idle(self) -> bool:
        """Whether it may be for nothing: it looks at connections on which nobody owes anything.

        They may be kept for later, or their other end has yet to send what it was not asked for.
        """
        looks = self.call.startswith(("epoll", "poll", "ppoll", "select", "pselect"))
        owed = any(one.owed or one.unsent for one in self.connections)
        return looks and bool(self.connections) and not owed

    @property
    def outward(self) -> bool:
        """Whether it is for somebody else in particular."""
        return self.mode is not Mode.ANYBODY and bool(self.targets or self.remotes)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that waits, or that somebody waits for."""

    pid: int
    start: int
    """In ticks since the boot."""
    state: State
    command: str
    """Its name as the kernel has it."""
    arguments: str = ""
    """Its command line: short, and without what may be a secret."""
    container: str = ""
    job: str = ""
    uid: int | None = None
    parent: int = 0
    threads: int = 0
    thread: int = 0
    """The one whose wait counts: the main one, unless another was asked for."""
    cores: float = 0.0
    """CPU time between the looks, as a number of cores."""
    steps: int = 0
    """How many waits lead to it from the processes that were asked for."""
    lacking: tuple[str, ...] = ()
    """What could not be seen, and why."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What lasted over two looks at some processes and at those that they wait for."""

    processes: Mapping[int, Process]
    waits: tuple[Wait, ...] = ()
    connections: tuple[Connection, ...] = ()
    """Those that were asked for and are held here."""
    seconds: float = 0.0
    """Between the two looks."""
    left_out: tuple[str, ...] = ()
    """What was not looked at, and why."""

    def of(self, pid: int) -> tuple[Wait, ...]:
        """The waits of one process, those of the thread that counts first."""
        process = self.processes.get(pid)
        first = process.thread if process else pid
        mine = [wait for wait in self.waits if wait.pid == pid]
        return tuple(sorted(mine, key=lambda wait: wait.thread != first))


def as_json(waiting: Waiting) -> dict[str, Any]:
    """What `from_json` reads."""
    return {
        "processes": [asdict(process) for process in waiting.processes.values()],
        "waits": [asdict(wait) for wait in waiting.waits],
        "connections": [asdict(connection) for connection in waiting.connections],
        "seconds": waiting.seconds,
        "left_out": list(waiting.left_out),
    }


def from_json(told: Any) -> Waiting:
    """The same again.  Raises one of `stagewatch.core.state_file.BROKEN` for anything else."""
    processes: tuple[Process, ...] = decode(tuple[Process, ...], told["processes"])
    return Waiting(
        {process.pid: process for process in processes},
        decode(tuple[Wait, ...], told["waits"]),
        decode(tuple[Connection, ...], told["connections"]),
        decode(float, told["seconds"]),
        decode(tuple[str, ...], told["left_out"]),
    )
