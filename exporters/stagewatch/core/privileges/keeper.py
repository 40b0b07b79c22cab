"""The agent's side of the process that keeps its privileges.

An attacker who takes over the agent can only make the keeper do what is on its list, and gains no
privilege: the agent itself has none.  As a service the keeper is a unit of its own, which
systemd starts when the agent connects, and again when it has ended.  Elsewhere the agent starts
with the privileges and passes them to a child for good. It cannot start a second child, so if the
child ends, the agent ends too, and the engine restarts both.
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
"""Timeout for a fork or an open on an overloaded machine."""
START_SECONDS = 30.0


class Keeper:
    """Starts children with privileges; thread-safe."""

    def __init__(self, children: Mapping[str, Child], path: Path | None = None) -> None:
        """Use the keeper behind the socket at `path`; without a path start one, and give up all
        privileges. Raises `SourceError` if that fails."""
        self._names = {child: name for name, child in children.items()}
        self._path = path
        self._lock = threading.Lock()
        self._closed = False
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._link = self._began(children) if path is None else None

    @property
    def link(self) -> socket.socket | None:
        """The connection to the keeper; it changes when the keeper restarts."""
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
        """The result of `core.adjtimex`.  Raises `OSError` or `SourceError`."""
        answer, _ = self.ask("read the clock")
        return tuple(map(int, answer.split()))

    def open_kernel_log(self) -> int:
        """A descriptor of the kernel log.  Raises `OSError` or `SourceError`."""
        _, passed = self.ask("open the kernel log")
        return passed[0]

    def ask(self, question: str, descriptors: tuple[int, ...] = ()) -> tuple[str, list[int]]:
        """The keeper's answer and the descriptors that it passes.

        Raises the keeper's `OSError`, and `SourceError` if it refuses or has ended.
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
        """End the keeper and its children."""
        self._closed = True
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _began(self, children: Mapping[str, Child]) -> socket.socket:
        """Start a child that takes over the privileges; returns the connection."""
        link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                bare_python("stagewatch.core.privileges.keeper_child", encode_children(children)),
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
        """Connect to the unit's keeper. Raises `SourceError` while it does not answer."""
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


def encode_children(children: Mapping[str, Child]) -> str:
    """The list of children in the keeper's format."""
    return json.dumps(
        {name: (child.module, child.arguments, child.may) for name, child in children.items()}
    )


def _greeted(link: socket.socket) -> None:
    """Wait until it has taken over the privileges. Raises `SourceError` if it does not."""
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
    """A child of the keeper, with its pipes; see `children.start.Process`."""

    def __init__(self, keeper: Keeper, pid: int, to_child: int, from_child: int) -> None:
        self._keeper = keeper
        self._link = keeper.link
        self.pid = pid
        self.stdin: IO[bytes] | None = os.fdopen(to_child, "wb", 0)
        self.stdout: IO[bytes] | None = os.fdopen(from_child, "rb", 0)
        self.stderr: IO[bytes] | None = None
        self._status: int | None = None

    def terminate(self) -> None:
        """Ask it to end; it has the same user, and keeps its pid until it is reaped."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
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
    """The keeper at this socket, or a new one that takes over this process's privileges.

    Call it before there is a socket or a thread. None if there is nothing to keep: root keeps its
    privileges, and other users see only their own processes.
    """
    if path is None and (os.geteuid() == 0 or not capabilities.held()):
        return None
    return Keeper(children, path)
