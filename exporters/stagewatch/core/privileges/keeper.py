"""The agent's side of the process that keeps its privileges.

Whoever takes the agent over by what it serves can have done what that process has on its list, and
gains no privilege: the agent itself has none.  As a service the keeper is a unit of its own, which
systemd starts when the agent connects, and again when it has ended.  Elsewhere the agent was given
the privileges, and has a child take them over for good; it cannot start another, so where that one
ends the agent ends as well, for the engine to start both anew.
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
from pathlib import Path
from typing import IO

from stagewatch.core.children.start import Child, bare_python
from stagewatch.core.errors import SourceError
from stagewatch.core.privileges import capabilities
from stagewatch.core.privileges.keeper_child import peer

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""How long it may take to fork or to open a file, on a machine with more to do than it can."""
START_SECONDS = 30.0


class Keeper:
    """Has children started with privileges, safe to use from any thread."""

    def __init__(self, children: Mapping[str, Child], path: Path | None = None) -> None:
        """Use the one that is to be reached by a socket, while there is one; without a path start
        one, and give all privileges up.  Raises `SourceError` where that fails."""
        self._names = {child: name for name, child in children.items()}
        self._path = path
        self._lock = threading.Lock()
        self._closed = False
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._link = self._began(children) if path is None else None

    @property
    def link(self) -> socket.socket | None:
        """The connection to it; another one once it has ended and was begun anew."""
        return self._link

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

    def read_clock(self) -> tuple[int, ...]:
        """What `core.adjtimex` tells.  Raises `OSError` or `SourceError`."""
        answer, _ = self.ask("read the clock")
        return tuple(map(int, answer.split()))

    def open_kernel_log(self) -> int:
        """A descriptor of the kernel's log.  Raises `OSError` or `SourceError`."""
        _, passed = self.ask("open the kernel log")
        return passed[0]

    def ask(self, question: str, descriptors: tuple[int, ...] = ()) -> tuple[str, list[int]]:
        """What it answers, and passes.

        Raises `OSError` as the keeper met it, and `SourceError` where it refuses or has ended.
        """
        with self._lock:
            if self._link is None:
                self._link = self._reached()
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
        self._closed = True
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _began(self, children: Mapping[str, Child]) -> socket.socket:
        """The connection to a child that takes the privileges over."""
        link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                bare_python("stagewatch.core.privileges.keeper_child", told(children)),
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
            )
        try:
            capabilities.limit()
        except OSError as error:
            raise SourceError(f"the privileges cannot be given up: {error}") from error
        _greeted(link)
        return link

    def _reached(self) -> socket.socket:
        """A connection to the unit's.  Raises `SourceError` while it does not answer."""
        if self._closed:
            raise SourceError("the keeper of privileges is closed")
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link.settimeout(START_SECONDS)
        try:
            link.connect(str(self._path))
            if (owner := peer(link)) not in (0, os.geteuid()):
                raise SourceError(f"the socket {self._path} belongs to user {owner}")
            _greeted(link)
        except (OSError, SourceError) as error:
            link.close()
            why = error.strerror or error if isinstance(error, OSError) else error
            message = f"the keeper of privileges cannot be reached at {self._path}: {why}"
            self._say(message)
            raise SourceError(message) from error
        self._say("")
        return link

    def _lost(self, error: OSError | None) -> SourceError:
        message = f"the keeper of privileges has ended{f': {error}' if error else ''}"
        if self._closed:
            pass
        elif self._path is None:
            log.error("%s; so the agent ends, to be begun anew", message)
            os.kill(os.getpid(), signal.SIGTERM)
        elif self._link is not None:
            self._say(message)
            self._link.close()
            self._link = None
        return SourceError(message)

    def _say(self, message: str) -> None:
        if message and message != self._said:
            log.warning("%s; what needs it waits for its return", message)
        self._said = message


def told(children: Mapping[str, Child]) -> str:
    """The list of what it may start, as it reads it."""
    return json.dumps(
        {name: (child.module, child.arguments, child.may) for name, child in children.items()}
    )


def _greeted(link: socket.socket) -> None:
    """Wait until it has taken the privileges over.  Raises `SourceError` where it does not."""
    link.settimeout(START_SECONDS)
    try:
        ready = link.recv(1024).decode()
    except OSError as error:
        raise SourceError(f"the keeper of privileges does not start: {error}") from error
    if not ready.startswith("ready"):
        raise SourceError("the keeper of privileges has ended")
    if lacks := ready.removeprefix("ready").strip():
        log.warning("the keeper of privileges runs unconfined: %s", lacks)
    link.settimeout(ANSWER_SECONDS)


class KeptProcess:
    """A child of the keeper's with its pipes; see `children.start.Process`."""

    def __init__(self, keeper: Keeper, pid: int, to_child: int, from_child: int) -> None:
        self._keeper = keeper
        self._link = keeper.link
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
        if self._keeper.link is not self._link:  # it died with its keeper
            return -signal.SIGKILL
        try:
            answer, _ = self._keeper.ask(f"reap {self.pid}")
        except SourceError:  # it dies with its parent
            return -signal.SIGKILL
        return int(answer) if answer else None

    def _signal(self, number: signal.Signals) -> None:
        if self._status is None and self._keeper.link is self._link:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def keep(children: Mapping[str, Child], path: Path | None) -> Keeper | None:
    """The keeper at this socket, or else of what this process may do beyond its user, which then
    may do no more of it.

    To be called before there is a socket or a thread.  None where there is nothing to keep: root
    keeps what it has, and anybody else sees what is his own.
    """
    if path is None and (os.geteuid() == 0 or not capabilities.held()):
        return None
    return Keeper(children, path)
