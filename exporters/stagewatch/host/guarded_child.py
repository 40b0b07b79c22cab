"""The child that reads files of `/proc` which may not answer; `guarded` is its other end.

Threads read.  If one does not return within a moment, others go on with the remaining processes;
its result comes with a later answer.

It may have privileges that the agent has not, so it reads only the files in `FILES`, whoever asks.
It reads and writes lines of JSON, uses the standard library only, and ends when its input does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

MOMENT_SECONDS = 0.25
"""A read that takes longer is taken for one that blocks."""
ANSWER_SECONDS = 3.0
"""When an answer goes out at the latest; processes not read by then are left out."""
MAX_THREADS = 64
"""Threads that may wait.  Once all do, this process reads nothing more and has to be replaced."""
MAX_BYTES = 1 << 20
"""Bytes read of one file."""
MAX_KEPT = 1 << 16
"""Bytes told of one file: of a process's sockets, some seven thousand."""
MAX_TOLD = 8 << 20
"""Bytes that one reader tells, which JSON may make six times as many; the rest is left out."""
MAX_DESCRIPTORS = 65_536
"""Descriptors looked at of one process."""

Read = tuple[str, int, str | None]
"""File, process, and content, of which each byte is a character: empty of a process that is gone,
None where it may not be read."""


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of them
        parts = []
        left = MAX_BYTES
        while left > 0 and (part := file.read(min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _link(path: str) -> bytes:
    return os.fsencode(os.readlink(path))  # noqa: PTH115


def _sockets(path: str) -> bytes:
    inodes = []
    for name in os.listdir(path)[:MAX_DESCRIPTORS]:  # noqa: PTH208 - thousands of names
        with contextlib.suppress(OSError):
            target = os.readlink(f"{path}/{name}")  # noqa: PTH115
            if target.startswith("socket:["):
                inodes.append(target[len("socket:[") : -1])
    return " ".join(inodes).encode()


FILES: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "environ": ("environ", _content),
    "cmdline": ("cmdline", _content),
    "io": ("io", _content),
    "wchan": ("wchan", _content),
    "ns/net": ("ns/net", _link),
    "sockets": ("fd", _sockets),
}
"""What may be asked of a process, which file of it tells that, and how it is read.  Of a thread,
whose number may stand for a process, `wchan` is its own."""


def refusal(question: Any) -> str:
    """Why a question is not allowed; empty if it is."""
    if not isinstance(question, dict) or question.keys() != {"file", "pids", "prefixes"}:
        return "this is no question"
    if not isinstance(question["file"], str) or question["file"] not in FILES:
        return "no such file"
    pids, prefixes = question["pids"], question["prefixes"]
    if not isinstance(pids, list) or not all(type(pid) is int and pid > 0 for pid in pids):
        return "no such process"
    if not isinstance(prefixes, list) or not all(isinstance(each, str) for each in prefixes):
        return "no such prefix"
    return ""


class _Reader(threading.Thread):
    """Reads one process after another, until all are read or one blocks."""

    def __init__(
        self, root: str, question: dict[str, Any], todo: deque[int], results: deque[Read]
    ) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._told = 0
        self._prefixes = tuple(prefix.encode() for prefix in question["prefixes"])
        self._todo = todo
        self._results = results
        self.file: str = question["file"]
        self.pid = 0
        """The process that is being read."""
        self.since = time.monotonic()
        """When that began."""
        self.start()

    def run(self) -> None:
        file, read = FILES[self.file]
        while self._todo:
            try:
                pid = self._todo.popleft()
            except IndexError:  # another reader took the last one
                break
            self.pid, self.since = pid, time.monotonic()
            content: str | None = ""
            try:
                content = self._kept(read(f"{self._root}/{pid}/{file}")).decode("latin-1")
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM):
                    content = None
            self._results.append((self.file, pid, content))
            self._told += len(content or "")
            if self._told > MAX_TOLD:
                self._todo.clear()

    @property
    def waits(self) -> bool:
        """Whether its read blocks."""
        return self.is_alive() and time.monotonic() - self.since > MOMENT_SECONDS

    def _kept(self, raw: bytes) -> bytes:
        if self._prefixes:
            raw = b"\0".join(item for item in raw.split(b"\0") if item.startswith(self._prefixes))
        return raw[:MAX_KEPT]


class Pool:
    """The readers that still wait, of all questions so far."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._results: deque[Read] = deque()
        self._waiting: list[_Reader] = []

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The results, also those of earlier questions; which reads wait; whether all do.

        For a question that is not allowed: the reason.
        """
        if why := refusal(question):
            return {"refused": why}
        todo = deque(question["pids"])
        end = time.monotonic() + ANSWER_SECONDS
        self._waiting = [reader for reader in self._waiting if reader.is_alive()]
        readers: list[_Reader] = []
        wanted = 1
        while time.monotonic() < end:
            room = MAX_THREADS - len(self._waiting) - len(readers)
            for _ in range(min(wanted - len(readers), room, len(todo))):
                readers.append(_Reader(self._root, question, todo, self._results))
            if not readers:
                break
            readers[0].join(MOMENT_SECONDS)
            stuck = [reader for reader in readers if reader.waits]
            self._waiting += stuck
            wanted += len(stuck)  # where one blocks, many may
            readers = [reader for reader in readers if reader.is_alive() and reader not in stuck]
        todo.clear()
        self._waiting += readers
        waiting = {(reader.file, reader.pid) for reader in self._waiting if reader.waits}
        read = [self._results.popleft() for _ in range(len(self._results))]
        done = {(file, pid) for file, pid, _ in read}
        return {
            "read": read,
            "blocked": sorted(waiting - done),
            "full": len(self._waiting) >= MAX_THREADS,
        }


def main() -> None:
    """Answer questions until the input ends."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # the agent decides on these
        signal.signal(number, signal.SIG_IGN)
    pool = Pool(sys.argv[1])
    try:
        for line in sys.stdin:
            print(json.dumps(pool.answer(json.loads(line))), flush=True)
    except BrokenPipeError:
        pass
    finally:
        os._exit(0)  # without joining the readers that wait
