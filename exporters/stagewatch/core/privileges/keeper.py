"""The agent's side of the process that keeps its privileges.

Whoever takes the agent over by what it serves can have done what that process has on its list, and
gains no privilege: the agent itself has none left.  Nor can the agent start another such process;
where that one ends, the agent ends as well, so that systemd or the engine starts both anew.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import IO

from stagewatch.core.children.start import Child, bare_python
from stagewatch.core.errors import SourceError
from stagewatch.core.privileges import capabilities

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""How long it may take to fork or to open a file, on a machine with more to do than it can."""
START_SECONDS = 60.0


class Keeper:
    """Has children started with privileges, safe to use from any thread."""

    def __init__(self, children: Mapping[str, Child]) -> None:
        """Start it, and give all privileges up.  Raises `SourceError` where that fails."""
        self._names = {child: name for name, child in children.items()}
        self._lock = threading.Lock()
        told = {
            name: (child.module, child.arguments, child.may) for name, child in children.items()
        }
        self._link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                bare_python("stagewatch.core.privileges.keeper_child", json.dumps(told)),
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
            )
        try:
            capabilities.limit()
        except OSError as error:
            raise SourceError(f"the privileges cannot be given up: {error}") from error
        self._link.settimeout(START_SECONDS)
        try:
            ready = self._link.recv(1024).decode()
        except OSError as error:
            raise SourceError(f"the keeper of privileges does not start: {error}") from error
        if not ready.startswith("ready"):
            raise SourceError("the keeper of privileges has ended")
        if lacks := ready.removeprefix("ready").strip():
            log.warning("the keeper of privileges runs unconfined: %s", lacks)
        self._link.settimeout(ANSWER_SECONDS)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def start(self, child: Child) -> KeptProcess:
        """Start one of its children.  Raises `OSError` or `SourceError`."""
        (reads, to_child), (from_child, writes) = os.pipe(), os.pipe()
        try:
            answer, _ = self.ask(f"start {self._names[child]}", (reads, writes))
        except BaseException:
            os.close(to_child)
            os.close(from_child)
            raise
        finally:
            os.close(reads)
            os.close(writes)
        return KeptProcess(self, int(answer), to_child, from_child)

    def open_kernel_log(self) -> int:
        """A descriptor of the kernel's log.  Raises `OSError` or `SourceError`."""
        _, passed = self.ask("open the kernel log")
        return passed[0]

    def ask(self, question: str, descriptors: tuple[int, ...] = ()) -> tuple[str, list[int]]:
        """What it answers, and passes.

        Raises `OSError` as the keeper met it, and `SourceError` where it refuses or has ended.
        """
        with self._lock:
            try:
                socket.send_fds(self._link, [question.encode()], descriptors)
                raw, passed, _, _ = socket.recv_fds(self._link, 64, 1, socket.MSG_CMSG_CLOEXEC)
            except OSError as error:
                raise self._lost(error) from error
            if not raw:
                raise self._lost(None)
        word, _, rest = raw.decode().partition(" ")
        if word == "refused":
            raise SourceError(f"the keeper of privileges does not {question}")
        if word == "failed":
            raise OSError(int(rest), os.strerror(int(rest)))
        return rest, passed

    def close(self) -> None:
        """End it, and its children with it."""
        self._link.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _lost(self, error: OSError | None) -> SourceError:
        why = f": {error}" if error else ""
        if self._link.fileno() >= 0:  # it was not closed
            log.error(
                "the keeper of privileges has ended%s; so the agent ends, to be begun anew", why
            )
            os.kill(os.getpid(), signal.SIGTERM)
        return SourceError(f"the keeper of privileges has ended{why}")


class KeptProcess:
    """A child of the keeper's with its pipes; see `children.start.Process`."""

    def __init__(self, keeper: Keeper, pid: int, to_child: int, from_child: int) -> None:
        self._keeper = keeper
        self.pid = pid
        self.stdin: IO[bytes] | None = os.fdopen(to_child, "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(from_child, "rb", 0)
        self.stderr: IO[bytes] | None = None
        self._status: int | None = None

    def terminate(self) -> None:
        """Ask it to end; it has the same user, and keeps its number until it is reaped."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it by force."""
        self._signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status.  Raises `subprocess.TimeoutExpired`."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        pause = 0.001
        while self._status is None:
            self._status = self._reap()
            if self._status is None:
                left = end - time.monotonic()
                if left <= 0:
                    raise subprocess.TimeoutExpired("a child with privileges", timeout or 0.0)
                time.sleep(min(pause, left))
                pause = min(2 * pause, 0.05)
        return self._status

    def _reap(self) -> int | None:
        try:
            answer, _ = self._keeper.ask(f"reap {self.pid}")
        except SourceError:  # it dies with its parent
            return -signal.SIGKILL
        return int(answer) if answer else None

    def _signal(self, number: signal.Signals) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def keep(children: Mapping[str, Child]) -> Keeper | None:
    """The keeper of what this process may do beyond its user, which then may do no more of it.

    To be called before there is a socket or a thread.  None where there is nothing to keep: root
    keeps what it has, and anybody else sees what is his own.
    """
    if os.geteuid() == 0 or not capabilities.held():
        return None
    return Keeper(children)
