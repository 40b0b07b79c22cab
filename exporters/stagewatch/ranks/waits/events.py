"""Descriptors without a file: eventfd, which processes may share, pidfd and timers."""

from __future__ import annotations

from stagewatch.ranks.waits.holders import EVENTFD, Holders
from stagewatch.ranks.waits.model import Kind
from stagewatch.ranks.waits.other_end import OtherEnd, name_pids

MAX_EVENTFDS = 8192
"""The most eventfds of all processes that are looked at."""

PIDFD = "anon_inode:[pidfd]"


class Events:
    """Finds who shares an eventfd, and whose end a pidfd waits for."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._sharing: dict[str, set[int]] | None = None

    def other_end(self, pid: int, descriptor: int, link: str) -> OtherEnd:
        """The other end of a descriptor that is no file, pipe or socket."""
        if link == EVENTFD:
            return self._eventfd(pid, descriptor)
        if link == PIDFD:
            told = self._value(pid, descriptor, "Pid:")
            if told.isdecimal() and int(told) > 0:
                words = f"the end of pid {told}"
                return OtherEnd(Kind.CHILD, words, frozenset({int(told)}))
            return OtherEnd(Kind.CHILD, "the end of a process that cannot be seen")
        kind = link.removeprefix("anon_inode:").strip("[]")
        return OtherEnd(Kind.OWN, f"its own {kind or 'descriptor'}", own=True)

    def _eventfd(self, pid: int, descriptor: int) -> OtherEnd:
        """Who shares an eventfd: from Linux 5.2 on, its id is the same in all these processes."""
        if self._sharing is None:
            self._sharing = {}
            for holder, held in self._holders.of(EVENTFD)[:MAX_EVENTFDS]:
                number = self._value(holder, held, "eventfd-id:")
                self._sharing.setdefault(number, set()).add(holder)
        number = self._value(pid, descriptor, "eventfd-id:")
        others = frozenset(self._sharing.get(number, set()) - {pid})
        if number and others:
            return OtherEnd(
                Kind.OTHER, f"an eventfd that it shares with {name_pids(others)}", others
            )
        return OtherEnd(Kind.OWN, "its own eventfd", own=True)

    def _value(self, pid: int, descriptor: int, name: str) -> str:
        for words in self._holders.information(pid, descriptor):
            if words[0:1] == [name]:
                return words[-1]
        return ""
