"""Reads files of `/proc` that wait for a lock of the process they tell of.

A process that is stuck in mmap(2) on a silent mount holds its memory map for writing, and whoever
reads its `environ` or `cmdline` waits along (`access_remote_vm` in the kernel's mm/memory.c; `maps`
and its kin do too).  One that is stuck in execve(2), while it closes a file on such a mount, holds
its `exec_update_lock`, for which `io` waits as well (`do_io_accounting` in fs/proc/base.c).  So a
child reads them, and the agent waits for a moment at most.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stagewatch.core.children.supervisor import PACKAGES, Supervisor

log = logging.getLogger(__name__)

_START = (
    "import sys; sys.path += sys.argv[1:]; from stagewatch.host.guarded_child import main; main()"
)


class Files(Protocol):
    """Reads one file of many processes."""

    def read(
        self, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
    ) -> Mapping[int, bytes]:
        """The file of each process that answers; see `GuardedFiles.read`."""

    def blocked(self, file: str) -> frozenset[int]:
        """The processes whose file does not answer."""


class GuardedFiles:
    """Reads such files in a child, safe to use from any thread.  Its owner closes it.

    A process that blocks is not read again before that very read has come back, or, where the child
    had to be replaced meanwhile, before the process has ended.
    """

    def __init__(self, root: Path = Path("/proc"), *, timeout: float = 10.0) -> None:
        self._root = root
        start = [sys.executable, "-I", "-S", "-c", _START, str(PACKAGES)]
        self._child = Supervisor(
            "the reader of /proc", lambda: start, timeout=timeout, start_timeout=timeout
        )
        self._lock = threading.Lock()
        self._blocked: set[tuple[str, int]] = set()

    def read(
        self, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
    ) -> Mapping[int, bytes]:
        """The file of each process that answers, empty where it may not be read.

        Of a file whose items end with a zero byte, only items with one of the prefixes are kept;
        at most 64 KiB of a file.  Raises `Stuck` or `SourceError` where the child does not answer.
        """
        with self._lock:
            self._blocked = {each for each in self._blocked if (self._root / str(each[1])).exists()}
            question = {
                "root": str(self._root),
                "file": file,
                "pids": [pid for pid in pids if (file, pid) not in self._blocked],
                "prefixes": list(prefixes),
            }
            if not question["pids"]:
                return {}
            answer = self._child.ask(question, dict)
            self._note(answer)
            if answer["full"]:
                self._child.dismiss()
            return {
                pid: content.encode("latin-1")
                for name, pid, content in answer["read"]
                if name == file
            }

    def blocked(self, file: str) -> frozenset[int]:
        """The processes whose file does not answer, and is not asked for."""
        return frozenset(pid for name, pid in self._blocked if name == file)

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _note(self, answer: Mapping[str, Any]) -> None:
        now = {(file, pid) for file, pid in answer["blocked"]}
        for file, pid in sorted(now - self._blocked):
            log.warning(
                "%s/%d/%s does not answer: the process holds its memory map or is stuck in exec, "
                "as on a mount whose server is silent; not read until it answers",
                *(self._root, pid, file),
            )
        self._blocked = (self._blocked | now) - {(file, pid) for file, pid, _ in answer["read"]}
