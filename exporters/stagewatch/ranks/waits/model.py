"""Processes, the waits of their threads, and who holds the other ends; to JSON and back.

JSON may come from an agent of another node or from a file, so every value is checked.
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
    """It waits for another process, or for anybody's request."""
    INWARD = "inward"
    """It waits for itself alone: for a lock, a pipe or an event between its own threads."""
    SLEEPING = "sleeping"
    """It is in one sleep of its own code that lasts longer than the two looks."""
    RETRYING = "retrying"
    """It sleeps again and again in its own code, for short times."""
    STORAGE = "storage"
    """It is in a call to a file system."""
    STOPPED = "stopped"
    """A signal has stopped it, or a debugger holds it."""
    ZOMBIE = "zombie"
    """It has ended, and its parent has not reaped it."""
    GONE = "gone"
    """It ended before both looks were done."""
    UNKNOWN = "unknown"
    """It may not be seen, or did different things at the two looks."""


class Mode(str, Enum):
    """Which of its targets must act to end a wait."""

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
    """Whether the remote end has opened the connection."""
    owed: bool = False
    """Whether the last data went to the remote end, so that it owes an answer."""
    unread: int = 0
    """Number of received bytes that were not read yet."""
    unsent: int = 0
    """Number of written bytes that the remote end has not taken yet."""
    sent_seconds: float | None = None
    """Seconds since data was last sent; `None` if unknown or never."""

    @property
    def leaves(self) -> bool:
        """Whether the remote end is not on this node, as far as can be seen."""
        return not self.holders and not self.remote.startswith(("127.", "[::1]"))


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of one thread, or of several threads of one process that wait alike."""

    pid: int
    thread: int
    kind: Kind
    call: str
    """The system call; the kernel's function if the call may not be read."""
    seconds_at_least: float
    """How long the thread has at least been in this call; 0 if it left and entered it again."""
    mode: Mode = Mode.ALL
    targets: tuple[int, ...] = ()
    """The awaited processes of this node."""
    witness: str = ""
    """The wait in words that follow the name of the process."""
    connections: tuple[Connection, ...] = ()
    serves: bool = False
    """Whether the targets have connected to the process, as clients do to a server."""
    unseen: bool = False
    """Whether the awaited process cannot be seen."""
    writes: bool = False
    """Whether the thread waits to send data, and not for incoming data."""
    alike: int = 1
    """Number of threads of the process that wait like this."""

    @property
    def remotes(self) -> tuple[Connection, ...]:
        """The connections whose remote end is not on this node."""
        return tuple(one for one in self.connections if one.leaves)

    @property
    def idle(self) -> bool:
        """Whether the wait may be for nothing: nobody owes anything on its connections.

        They may be kept for later, or their remote end may send data without being asked.
        """
        looks = self.call.startswith(("epoll", "poll", "ppoll", "select", "pselect"))
        owed = any(one.owed or one.unsent for one in self.connections)
        return looks and bool(self.connections) and not owed

    @property
    def outward(self) -> bool:
        """Whether the wait is for particular other processes."""
        return self.mode is not Mode.ANYBODY and bool(self.targets or self.remotes)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that waits or is awaited."""

    pid: int
    start: int
    """When it began, in ticks since the boot."""
    state: State
    command: str
    """Its name in the kernel."""
    arguments: str = ""
    """Its command line, shortened and without possible secrets."""
    container: str = ""
    job: str = ""
    uid: int | None = None
    parent: int = 0
    threads: int = 0
    thread: int = 0
    """The thread whose wait counts: the main one, unless another was requested."""
    cores: float = 0.0
    """Mean number of used cores between the looks."""
    steps: int = 0
    """Number of waits that lead to it from a requested process."""
    lacking: tuple[str, ...] = ()
    """What could not be seen of it, and why."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The waits that lasted over two looks, of the requested processes and of their targets."""

    processes: Mapping[int, Process]
    waits: tuple[Wait, ...] = ()
    connections: tuple[Connection, ...] = ()
    """The requested connections that are held here."""
    seconds: float = 0.0
    """Time between the two looks."""
    left_out: tuple[str, ...] = ()
    """What was not looked at, and why."""

    def of(self, pid: int) -> tuple[Wait, ...]:
        """The waits of one process, those of the thread that counts first."""
        process = self.processes.get(pid)
        first = process.thread if process else pid
        mine = [wait for wait in self.waits if wait.pid == pid]
        return tuple(sorted(mine, key=lambda wait: wait.thread != first))


def as_json(waiting: Waiting) -> dict[str, Any]:
    """The answer as JSON, for `from_json`."""
    return {
        "processes": [asdict(process) for process in waiting.processes.values()],
        "waits": [asdict(wait) for wait in waiting.waits],
        "connections": [asdict(connection) for connection in waiting.connections],
        "seconds": waiting.seconds,
        "left_out": list(waiting.left_out),
    }


def from_json(answer: Any) -> Waiting:
    """The answer from the JSON of `as_json`.  Raises one of `core.state_file.BROKEN`."""
    processes: tuple[Process, ...] = decode(tuple[Process, ...], answer["processes"])
    return Waiting(
        {process.pid: process for process in processes},
        decode(tuple[Wait, ...], answer["waits"]),
        decode(tuple[Connection, ...], answer["connections"]),
        decode(float, answer["seconds"]),
        decode(tuple[str, ...], answer["left_out"]),
    )
