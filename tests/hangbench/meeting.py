"""Where the ranks of a job meet: a rendezvous over shared memory that really blocks.

Every word has one writer.  A rank that must wait spins, sleeps briefly again and again, or blocks
in the kernel for a datagram, which whoever changes something sends to those that may wait for it.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.hangbench.collectives import COLLECTIVES
from tests.hangbench.shape import MAX_GROUPS, MAX_QUEUES, MAX_WORLD, WORLD, Shape

_MARK, _INSIDE, _STEP, _WAITED = 0, 1, 2, 3
_OWN = 4
"""Words a process has besides those of groups and messages."""
_GROUPS = MAX_GROUPS + 2
"""Besides those of a shape, the world and what forms it anew."""
_WORDS = _OWN + 2 * _GROUPS + 2 * MAX_WORLD + 2 * MAX_QUEUES
REFORM = "reform"


class Board:
    """Words of memory about every process of one generation of a job, which all of them share."""

    def __init__(self, directory: Path, generation: int) -> None:
        path = directory / f"board.{generation}"
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        words = memoryview(self._map).cast("q")
        self._of = [words[rank * _WORDS : (rank + 1) * _WORDS] for rank in range(MAX_WORLD)]

    @staticmethod
    def create(directory: Path, generation: int) -> None:
        """Make the file; nobody has done anything yet."""
        (directory / f"board.{generation}").write_bytes(bytes(8 * _WORDS * MAX_WORLD))

    def mark(self, rank: int, step: int) -> None:
        """Note that a process goes on with a step."""
        self._of[rank][_MARK] = time.time_ns()
        self._of[rank][_STEP] = step

    def inside(self, rank: int, inside: bool) -> None:
        """Note that a process enters or leaves a collective."""
        own, now = self._of[rank], time.time_ns()
        if own[_INSIDE] and not inside:
            own[_WAITED] += now - own[_INSIDE]
        own[_INSIDE] = now if inside else 0

    def add_waiting(self, rank: int, nanoseconds: int) -> None:
        """Note that a process has communicated for so long, in what is not a collective to us."""
        self._of[rank][_WAITED] += nanoseconds

    def waited(self, rank: int) -> float:
        """Seconds that a process has spent in communication so far."""
        own = self._of[rank]
        inside = own[_INSIDE]
        return (own[_WAITED] + (time.time_ns() - inside if inside else 0)) / 1e9

    def seen(self, rank: int) -> tuple[float, float, int]:
        """When a process was last marked and when it entered the collective it is in (Unix
        seconds, 0: never, in none), and its step."""
        own = self._of[rank]
        return own[_MARK] / 1e9, own[_INSIDE] / 1e9, own[_STEP]

    def words(self, rank: int) -> memoryview:
        """All of a process's."""
        return self._of[rank]


class Meeting:
    """One process's part in the communication of its job."""

    def __init__(
        self, shape: Shape, directory: Path, board: Board, rank: int, world: int, generation: int
    ) -> None:
        self._shape, self._board, self.rank, self.world = shape, board, rank, world
        self._names = [WORLD, REFORM, *sorted(shape.groups)]
        place = directory.stat()  # its path may be longer than the name of a socket
        self._where = f"\0hangbench.{place.st_dev}.{place.st_ino}.{generation}."
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"{self._where}{rank}")
        self.aside = self
        """For what is not communicated over PyTorch, in a job that uses it."""
        self._gone: frozenset[int] = frozenset()
        self._pending: deque[tuple[str, int, int]] = deque()

    def close(self) -> None:
        """Go away."""
        self._socket.close()

    def begin(self) -> None:
        """Wait until all have begun, which no detector is told of."""
        self.collective(REFORM, "begin", 0)

    def leave(self, gone: Iterable[int]) -> None:
        """Meet all but those that are gone, to form another generation."""
        self._gone = frozenset(gone)
        self.collective(REFORM, "leave", 0)

    def members(self, group: str) -> tuple[int, ...]:
        """Those that must meet."""
        if group == REFORM:
            return tuple(rank for rank in range(self.world) if rank not in self._gone)
        return self._shape.group_of(group, self.rank, self.world)[1]

    def collective(self, group: str, op: str, elements: int) -> None:
        """Meet the other members of the group."""
        entered = self._enter(group, op, elements)
        if group == REFORM:
            self._finish(*entered)
        else:
            COLLECTIVES[op](lambda: self._finish(*entered))

    def lose(self, group: str, op: str, elements: int) -> None:
        """Wait for the other members for ever, as if the network had lost what they sent."""
        self._enter(group, op, elements)
        self._until(lambda: False)

    def begin_async(self, group: str, op: str, elements: int) -> None:
        """Enter without waiting."""
        self._pending.append(self._enter(group, op, elements))

    def wait_oldest(self) -> None:
        """Wait in the oldest of those."""
        self._finish(*self._pending.popleft())

    def oldest_is_complete(self) -> bool:
        """Whether waiting for it would take no time."""
        return self._is_complete(*self._pending[0])

    def send(self, peer: int) -> None:
        """Send a message once the one before has been taken."""
        mine, theirs = self._board.words(self.rank), self._board.words(peer)
        sent, taken = _OWN + 2 * _GROUPS + peer, _OWN + 2 * _GROUPS + MAX_WORLD + self.rank
        self._until(lambda: theirs[taken] >= mine[sent])
        mine[sent] += 1
        self._wake((peer,))

    def receive(self, peer: int) -> None:
        """Wait for a message."""
        mine, theirs = self._board.words(self.rank), self._board.words(peer)
        sent, taken = _OWN + 2 * _GROUPS + self.rank, _OWN + 2 * _GROUPS + MAX_WORLD + peer
        self._until(lambda: theirs[sent] > mine[taken])
        mine[taken] += 1
        self._wake((peer,))

    def put(self, queue: str, depth: int) -> None:
        """Add to a queue once there is room."""
        put, _ = self._queue(queue)
        self._until(lambda: self.waiting(queue) < depth)
        self._board.words(self.rank)[put] += 1
        self._wake(range(MAX_WORLD))

    def get(self, queue: str) -> None:
        """Take from a queue once there is something."""
        _, got = self._queue(queue)
        self._until(lambda: self.waiting(queue) > 0)
        self._board.words(self.rank)[got] += 1
        self._wake(range(MAX_WORLD))

    def waiting(self, queue: str) -> int:
        """How many are in a queue."""
        put, got = self._queue(queue)
        everybody = [self._board.words(rank) for rank in range(MAX_WORLD)]
        return sum(words[put] - words[got] for words in everybody)

    def _enter(self, group: str, op: str, elements: int) -> tuple[str, int, int]:
        word = _OWN + 2 * self._names.index(group)
        mine = self._board.words(self.rank)
        tag = zlib.crc32(f"{op} {elements}".encode())
        mine[word + 1] = tag
        mine[word] += 1
        self._wake(self.members(group))
        return group, mine[word], tag

    def _finish(self, group: str, number: int, tag: int) -> None:
        self._until(lambda: self._is_complete(group, number, tag))

    def _is_complete(self, group: str, number: int, tag: int) -> bool:
        word = _OWN + 2 * self._names.index(group)
        others = [self._board.words(rank) for rank in self.members(group) if rank != self.rank]
        return all(
            other[word] > number or (other[word] == number and other[word + 1] == tag)
            for other in others
        )

    def _queue(self, queue: str) -> tuple[int, int]:
        word = _OWN + 2 * _GROUPS + 2 * MAX_WORLD + 2 * self._shape.queues[queue].index
        return word, word + 1

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._shape.wait == "poll":
                time.sleep(self._shape.poll_seconds)
            elif self._shape.wait == "block":
                self._socket.recv(16)

    def _wake(self, ranks: Iterable[int]) -> None:
        if self._shape.wait != "block":
            return
        for rank in ranks:
            if rank != self.rank:
                with contextlib.suppress(
                    OSError
                ):  # not there yet or any more, or its queue is full
                    self._socket.sendto(b"!", socket.MSG_DONTWAIT, f"{self._where}{rank}")


class MetQueue:
    """A queue of a meeting, in which no kernel sees who waits for whom."""

    def __init__(self, meeting: Meeting, name: str, depth: int) -> None:
        self._meeting, self._name, self._depth = meeting, name, depth

    def put(self) -> None:
        """Add something once there is room."""
        self._meeting.put(self._name, self._depth)

    def get(self, timeout: float | None = None) -> bool:
        """Take something once there is something; False where nothing is there after a sleep of so
        many seconds."""
        if timeout is not None and not self._meeting.waiting(self._name):
            time.sleep(timeout)
            if not self._meeting.waiting(self._name):
                return False
        self._meeting.get(self._name)
        return True

    def close(self) -> None:
        """The meeting is closed by itself."""
