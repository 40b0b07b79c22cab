"""Reads files of `/proc` that wait for a lock of their process.

A process that is stuck in mmap(2) on a mount that does not answer holds the lock of its memory map.
Readers of its `environ`, `cmdline` or `maps` wait for that lock (`access_remote_vm` in the kernel's
mm/memory.c).  A process that is stuck in execve(2), while it closes a file on that mount, holds its
`exec_update_lock`; readers of `io` wait for it (`do_io_accounting` in fs/proc/base.c).  So a child
reads these files, and the agent waits for a moment at most.

The child has the privileges to read files of other users' processes; the agent has not: see
`core.privileges`.  It reads only the files in `guarded_child.FILES`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stagewatch.core.children.start import Child, Start, plainly
from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import SourceError

log = logging.getLogger(__name__)


class Files(Protocol):
    """Reads one file of many processes."""

    def read(
        self, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
    ) -> Mapping[int, bytes | None]:
        """The file of each process that answers; see `GuardedFiles.read`."""

    def blocked(self, file: str) -> frozenset[int]:
        """The processes whose file does not answer."""


def reader(root: Path = Path("/proc")) -> Child:
    """The child that reads the process filesystem mounted there."""
    return Child("stagewatch.host.guarded_child", (str(root),))


class GuardedFiles:
    """Reads these files in a child; any thread may use it.  Its owner closes it.

    A process whose read blocks is not read again until that read returns.
    """

    def __init__(
        self, root: Path = Path("/proc"), *, timeout: float = 10.0, start: Start = plainly
    ) -> None:
        self._root = root
        self._child = Supervisor(
            "the reader of /proc",
            lambda: start(reader(root)),
            timeout=timeout,
            start_timeout=timeout,
        )
        self._lock = threading.Lock()
        self._blocked: dict[str, frozenset[int]] = {}

    def read(
        self, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
    ) -> Mapping[int, bytes | None]:
        """The file of every process that answers: empty if the process is gone, None if the agent
        may not read it.

        At most 64 KiB of a file; if its items end with a zero byte, only items with one of the
        prefixes.  Raises `Stuck` or `SourceError` if the child does not answer.
        """
        with self._lock:
            question = {"file": file, "pids": list(pids), "prefixes": list(prefixes)}
            if not question["pids"]:
                return {}
            answer = self._child.ask(question, _answer)
            self._note(file, frozenset(answer["blocked"]))
            return {
                pid: None if content is None else content.encode("latin-1")
                for pid, content in answer["read"]
            }

    def blocked(self, file: str) -> frozenset[int]:
        """The processes whose file does not answer and is not read for now."""
        return self._blocked.get(file, frozenset())

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _note(self, file: str, blocked: frozenset[int]) -> None:
        for pid in sorted(blocked - self.blocked(file)):
            log.warning(
                "%s/%d/%s does not answer: the process holds its memory map or is stuck in exec, "
                "as on a mount whose server is silent; not read until it answers",
                *(self._root, pid, file),
            )
        self._blocked[file] = blocked


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    if "refused" in answer:
        raise SourceError(f"the reader of /proc refuses: {answer['refused']}")
    return answer
