"""Waits for several descriptors, by poll, select and epoll: which ones, and whom the wait is for.

Of the memory of other processes, only the array of poll(2) is read.  For select(2), only the first
argument is known: the highest descriptor.  The descriptors of an epoll instance are in its
`fdinfo`, see proc_pid_fdinfo(5)."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from stagewatch.core.descriptors import closing
from stagewatch.ranks.waits.model import Connection, Kind, Mode
from stagewatch.ranks.waits.other_end import OtherEnd

MAX_DESCRIPTORS = 512
"""The most descriptors of one call."""
MAX_WORDS = 3
"""The most ends that the words of a wait name."""

READS, WRITES = 0x1 | 0x2 | 0x40 | 0x2000, 0x4 | 0x100
"""POLLIN, POLLPRI, POLLRDNORM, POLLRDHUP; POLLOUT, POLLWRNORM.  epoll has the same numbers."""

_POLLFD = struct.Struct("=ihh")

Watched = tuple[int, bool]
"""A descriptor, and whether it is watched for data that comes in."""


def polled(root: str, pid: int, address: int, count: int) -> list[Watched]:
    """What is in the array of a poll.  Raises `OSError` where it may not be read."""
    with closing(os.open(f"{root}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)) as memory:
        raw = os.pread(memory, _POLLFD.size * min(count, MAX_DESCRIPTORS), address)
    whole = raw[: len(raw) // _POLLFD.size * _POLLFD.size]
    return [
        (descriptor, bool(events & READS) or not events & WRITES)
        for descriptor, events, _ in _POLLFD.iter_unpack(whole)
        if descriptor >= 0
    ]


def watched(information: Sequence[Sequence[str]]) -> list[Watched]:
    """The descriptors that an epoll instance watches, by the lines of its `fdinfo`."""
    found: list[Watched] = []
    for words in information:
        if words[:1] == ["tfd:"] and len(words) > 3 and len(found) < MAX_DESCRIPTORS:
            events = int(words[3], 16)
            found.append((int(words[1]), bool(events & READS) or not events & WRITES))
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """What a wait for several descriptors comes down to."""

    kind: Kind
    mode: Mode
    ends: tuple[OtherEnd, ...]
    """The ends that count."""
    words: str

    @property
    def pids(self) -> set[int]:
        """The processes that hold these ends."""
        return {pid for end in self.ends for pid in end.pids}

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The TCP connections among them."""
        return tuple(end.connection for end in self.ends if end.connection)


def choose(ends: Sequence[OtherEnd]) -> Choice:
    """The ends that a thread waits for, if it watches all of these.

    Ends that owe an answer count; without any, all ends that may give one.  If the thread also
    accepts connections, the accepted ones are those of clients: it waits for anybody's next
    request."""
    others = [end for end in ends if not end.own and not end.listens]
    listens = [end for end in ends if end.listens]
    opened = [end for end in others if not (listens and end.accepted)]
    counting = [end for end in opened if not end.weak] or opened
    if counting:
        kinds = {end.kind for end in counting}
        kind = kinds.pop() if len(kinds) == 1 else Kind.SEVERAL
        return Choice(kind, Mode.ANY, tuple(counting), _words(counting))
    if listens:
        return Choice(Kind.ACCEPT, Mode.ANYBODY, tuple(others), _words([*listens, *others]))
    return Choice(Kind.OWN, Mode.ALL, (), _words(ends) or "nothing that can be seen")


def _words(ends: Sequence[OtherEnd]) -> str:
    words = list(dict.fromkeys(end.words for end in ends))
    if len(words) > MAX_WORDS:
        words = [*words[:MAX_WORDS], f"{len(words) - MAX_WORDS} more"]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
