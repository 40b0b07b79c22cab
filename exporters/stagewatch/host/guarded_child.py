"""The child that reads files of `/proc` which may not answer; `guarded` is its other end.

A file that does not answer within a moment keeps no other from being read (`patience`), and is not
read again before it does.

It may have privileges that the agent has not, so it never reads other files than those in `FILES`.
It reads and writes lines of JSON, uses the standard library only, and ends when its input does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from stagewatch.host.patience import Patience, user_of

ANSWER_SECONDS = 3.0
"""When an answer goes out at the latest; processes not read by then are left out."""
MAX_BYTES = 1 << 20
"""Bytes read of one file."""
MAX_KEPT = 1 << 16
"""The most bytes of one file in an answer: some seven thousand sockets of a process."""
MAX_TOLD = 8 << 20
"""The most bytes of one answer, which JSON may multiply by six; the rest is left out."""
MAX_DESCRIPTORS = 65_536
"""The most descriptors of one process that are read."""

Read = tuple[int, str | None]
"""Process, and content with one character per byte: empty for a process that is gone,
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
"""What may be asked about a process, which file says it, and how that is read. For a thread, whose
number may stand for a process, `wchan` is its own."""


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


class Reader:
    """Reads files of one process filesystem; remembers which of them do not answer."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._patience = Patience(self._user_of)
        self._told = 0

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What was read of each process that answers, and those whose file does not.

        For a question that is not allowed: the reason.
        """
        if why := refusal(question):
            return {"refused": why}
        self._told = 0
        file, pids = question["file"], question["pids"]
        prefixes = tuple(prefix.encode() for prefix in question["prefixes"])
        reads = [
            (f"{self._root}/{pid}/{file}", partial(self._read, pid, file, prefixes)) for pid in pids
        ]
        answers = self._patience.ask_each(reads, until=time.monotonic() + ANSWER_SECONDS)
        silent = (name.removeprefix(f"{self._root}/") for name in self._patience.silent())
        waiting = (name.partition("/") for name in silent)
        return {
            "read": [answer for answer in answers if answer is not None],
            "blocked": sorted(int(pid) for pid, _, name in waiting if name == file),
        }

    def _read(self, pid: int, file: str, prefixes: tuple[bytes, ...]) -> Read:
        """One file. Raises `OSError` once enough has been read."""
        if self._told > MAX_TOLD:
            raise OSError
        name, read = FILES[file]
        try:
            raw = read(f"{self._root}/{pid}/{name}")
        except OSError as error:
            return pid, None if error.errno in (errno.EACCES, errno.EPERM) else ""
        if prefixes:
            raw = b"\0".join(item for item in raw.split(b"\0") if item.startswith(prefixes))
        content = raw[:MAX_KEPT].decode("latin-1")
        self._told += len(content)
        return pid, content

    def _user_of(self, name: str) -> int | None:
        """The effective user of the process whose file this is."""
        pid = name.removeprefix(f"{self._root}/").partition("/")[0]
        return user_of(f"{self._root}/{pid}")


def main() -> None:
    """Answer questions until the input ends."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # the agent decides on these
        signal.signal(number, signal.SIG_IGN)
    reader = Reader(sys.argv[1])
    try:
        for line in sys.stdin:
            print(json.dumps(reader.answer(json.loads(line))), flush=True)
    except BrokenPipeError:
        pass
    finally:
        os._exit(0)  # without joining the threads that wait
