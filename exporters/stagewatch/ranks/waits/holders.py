"""Which processes of this node have which pipe, socket or file open, and how.

Everything that may be read is read once, at the first question; the likeliest processes come first,
since there is a limit.  To read a link of `/proc/PID/fd`, the kernel does not ask its file system.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.waits.threads import read

MAX_DESCRIPTORS = 16_384
"""The most descriptors of one process that are looked at."""
MAX_ALL_DESCRIPTORS = 262_144
"""The most descriptors of all processes that are looked at."""
MAX_MODES = 1024
"""The most descriptors of one pipe whose mode is looked up."""
SEARCH_SECONDS = 2.0
"""How long one process may take."""
MAX_LINK = 512

EVENTFD = "anon_inode:[eventfd]"

Held = tuple[int, int]
"""A process, and its descriptor or the mode of that."""


class Holders:
    """Finds the holders of pipes, sockets and files; `order` returns all processes, the likeliest
    first."""

    def __init__(
        self, proc: Procfs, order: Callable[[], Iterable[int]], has_time: Callable[[], bool]
    ) -> None:
        self._proc = proc
        self._order = order
        self._has_time = has_time
        self._held: dict[str, list[Held]] | None = None
        self._modes: dict[str, frozenset[Held]] = {}
        self._hidden = 0
        self._cut: dict[int, str] = {}
        self._left_out = 0

    def of(self, link: str) -> list[Held]:
        """The processes that hold what `link` names, with their descriptors."""
        if self._held is None:
            self._held = self._search()
        return self._held.get(link, [])

    def pids_of(self, link: str) -> set[int]:
        """The processes that hold what `link` names."""
        return {pid for pid, _ in self.of(link)}

    def modes(self, link: str) -> frozenset[Held]:
        """The processes that hold a pipe, with the mode: `os.O_RDONLY`, `O_WRONLY` or `O_RDWR`."""
        if link not in self._modes:
            self._modes[link] = frozenset(
                (pid, int(words[1], 8) & os.O_ACCMODE)
                for pid, descriptor in self.of(link)[:MAX_MODES]
                for words in self.information(pid, descriptor)
                if words[:1] == ["flags:"]
            )
        return self._modes[link]

    def link(self, pid: int, descriptor: int) -> str:
        """The link of a descriptor, as `pipe:[4711]`; empty if it may not be read."""
        path = f"{self._proc.root}/{pid}/fd/{descriptor}"
        found = self._proc.patiently(pid, lambda: os.readlink(path))  # noqa: PTH115
        return (found or "")[:MAX_LINK]

    def information(self, pid: int, descriptor: int) -> list[list[str]]:
        """The lines of a descriptor's `fdinfo`, as words; empty if it may not be read."""
        path = f"{self._proc.root}/{pid}/fdinfo/{descriptor}"
        raw = self._proc.patiently(pid, lambda: read(path, 1 << 18)) or b""
        return [line.split() for line in raw.decode("ascii", "replace").splitlines()]

    def lacking(self, pid: int) -> str:
        """Which of a process's own descriptors could not be seen, and why."""
        return self._cut.get(pid, "")

    def left_out(self) -> list[str]:
        """Which processes' descriptors were not looked at, and why."""
        told = []
        if self._hidden:
            told.append(f"{self._hidden} processes do not let their descriptors be read")
        if self._left_out:
            told.append(f"{self._left_out} processes were not searched: there are too many")
        return told

    def _search(self) -> dict[str, list[Held]]:
        held: dict[str, list[Held]] = defaultdict(list)
        count = 0
        for pid in self._order():
            if count >= MAX_ALL_DESCRIPTORS or not self._has_time():
                self._left_out += 1
                continue
            search = partial(self._links, pid)
            found = self._proc.patiently(pid, search, SEARCH_SECONDS) or []
            count += len(found)
            for descriptor, link in found:
                held[link].append((pid, descriptor))
        return held

    def _links(self, pid: int) -> list[tuple[int, str]]:
        directory = f"{self._proc.root}/{pid}/fd"
        links: list[tuple[int, str]] = []
        names: list[str] = []
        try:
            with os.scandir(directory) as entries:
                names += (entry.name for entry in islice(entries, MAX_DESCRIPTORS + 1))
        except PermissionError as error:
            self._hidden += 1
            self._cut[pid] = f"its descriptors: {error.strerror}"
        for name in names[:MAX_DESCRIPTORS]:
            try:
                link = os.readlink(f"{directory}/{name}")  # noqa: PTH115
            except OSError:  # closed meanwhile
                continue
            if link[0] != "a" or link == EVENTFD:  # other anonymous inodes are not shared
                links.append((int(name), link[:MAX_LINK]))
        if len(names) > MAX_DESCRIPTORS:
            self._cut[pid] = f"its descriptors beyond the first {MAX_DESCRIPTORS:,}"
        return links
