"""Supervises one child process that answers lines of JSON with lines of JSON, and may never answer.

A call into a driver or a dead mount can block for ever, in a state in which not even SIGKILL helps.
So:

* every question has a deadline; after it the child is killed, once, and `Stuck` is raised;
* no second child is started while the first has not been reaped, since it would only hang as well;
* after a failure the next start waits, longer each time and with jitter, since starting and
  killing clients has itself been seen to wedge a driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from stagewatch.core.children.start import Process
from stagewatch.core.errors import NoData, SourceError, StagewatchError, Stuck

T = TypeVar("T")

MAX_LINE = 64 << 20
"""Longest answer in bytes; a longer one is an error."""

SHORT = 0.3
"""How long to wait, in seconds, for actions that take a moment in a healthy child."""


class Supervisor:
    """Starts the child with the first question, and again after it has ended or timed out.

    Messages call the child `name`, and the service behind it `answerer`. `start` starts it; if its
    standard error is a pipe, its last line explains why it ended. Every new child first gets the
    `greeting`. Any thread may ask; if the child dies with its parent, the thread that starts it
    must live as long.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Process],
        *,
        answerer: str = "",
        greeting: Callable[[], object] | None = None,
        timeout: float = 5.0,
        start_timeout: float = 30.0,
        backoff: tuple[float, float] = (5.0, 300.0),
        patience: float = SHORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._answerer = answerer or name
        self._start = start
        self._greeting = greeting
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._backoff = backoff
        self._patience = patience
        self._clock = clock
        self._child: _Child | None = None
        self._answered = False
        self._greeted = False
        self._limit = start_timeout
        self._due = 0.0
        self._leave_by: float | None = None
        self._failures = 0
        self._not_before = 0.0
        self._error: StagewatchError | None = None
        self._closed = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the child, if there is one."""
        child = self._child
        return None if child is None else child.pid

    def ask(self, question: object, read: Callable[[Any], T]) -> T:
        """Ask a question; returns the result of `read` for the answer.

        Raises `Stuck` after the deadline and until the child answers again, and `SourceError` if
        the child has ended. An exception of `read` counts as a failure too.
        """
        with self._lock:
            self._tell(question)
            return cast(T, self._answer(read, self._due))

    def begin(self, question: object) -> None:
        """Ask a question without waiting; call `answer` until it returns the answer.

        Raises `SourceError` if there is no child to ask.
        """
        with self._lock:
            self._tell(question)

    def answer(self, read: Callable[[Any], T]) -> T | None:
        """The result of `read` for the answer to the begun question; None while there is none.

        Never waits. Raises as `ask` does; `Stuck` after the question's deadline.
        """
        with self._lock:
            return self._answer(read, self._clock())

    def dismiss(self) -> None:
        """End the child: with SIGTERM first, with SIGKILL when its time is up."""
        with self._lock:
            self._error = None
            child = self._child
            if child is None or self._reap():
                return
            now = self._clock()
            if self._leave_by is None:
                self._leave_by = now + self._timeout
                child.terminate()
                self._reap(SHORT)
            elif now > self._leave_by:
                child.kill()

    def close(self) -> None:
        """End the child for good; waits at most its patience and a second."""
        if self._closed.is_set():
            return
        self._closed.set()
        os.write(self._wake_write, b"x")
        unused = self._lock.acquire(timeout=SHORT)
        child = self._child
        if child is not None:
            child.terminate()
            if not child.reap(self._patience):
                child.kill()
                if not child.reap(SHORT):  # on a busy machine it ends a moment later
                    threading.Thread(target=child.reap, args=(None,), daemon=True).start()
        if unused:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._lock.release()

    def _ready(self) -> _Child:
        """The child to ask, started if need be."""
        if self._closed.is_set():
            raise SourceError(f"{self._name} is closed")
        child = self._child
        if child is not None:
            if not child.killed and self._leave_by is None:
                return child
            if not self._reap():
                raise Stuck(
                    f"{self._name} (pid {child.pid}) does not end: "
                    "it sits in a call that cannot be interrupted"
                )
        if self._error is not None and self._clock() < self._not_before:
            raise type(self._error)(*self._error.args) from self._error
        self._answered = False
        self._leave_by = None
        try:
            self._child = _Child(self._name, self._start(), self._clock)
        except SourceError as error:
            self._failed(error)
            raise
        except OSError as error:  # the limit of processes, of descriptors or of memory
            failure = SourceError(f"{self._name} cannot be started: {error.strerror}")
            self._failed(failure)
            raise failure from error
        if self._closed.is_set():  # while it was being started
            self._child.kill()
            self._reap(SHORT)
            raise SourceError(f"{self._name} is closed")
        self._greeted = self._greeting is None
        return self._child

    def _tell(self, question: object) -> None:
        child = self._ready()
        self._limit = self._timeout if self._answered else self._start_timeout
        try:
            if self._greeting is not None and not self._greeted:
                self._greeted = True
                child.tell(self._greeting())
            child.tell(question)
        except StagewatchError as error:
            self._failed(error)
            raise
        self._due = self._clock() + self._limit

    def _answer(self, read: Callable[[Any], T], until: float) -> T | None:
        """The answer by then; None before the deadline."""
        try:
            if self._child is None:
                raise SourceError(f"{self._name} has ended")
            line = self._child.line(until, self._wake_read)
            if self._closed.is_set():
                raise SourceError(f"{self._name} is closed")
            if line is None and self._clock() < self._due:
                return None
            if line is None:
                raise Stuck(f"{self._answerer} has not answered for {self._limit:g} s")
            try:
                told = json.loads(line)
            except ValueError as error:
                raise SourceError(f"{self._name} wrote something else than JSON") from error
            found = read(told)
        except StagewatchError as error:
            self._failed(error)
            raise
        self._answered = True
        self._failures = 0
        self._error = None
        return found

    def _failed(self, error: StagewatchError) -> None:
        """Kill the child, and delay the next start."""
        if self._closed.is_set():
            return
        first, most = self._backoff
        delay = min(most, first * 2 ** min(self._failures, 16))
        if isinstance(error, NoData):
            delay = most
        self._failures += 1
        self._not_before = self._clock() + delay * random.uniform(0.75, 1.25)  # noqa: S311
        self._error = error
        if self._child is not None:
            self._child.kill()
            self._reap(SHORT)

    def _reap(self, timeout: float = 0.0) -> bool:
        """Reap the child; returns whether it is gone within the timeout."""
        if self._child is None or self._child.reap(timeout):
            self._child = None
            return True
        return False


class _Child:
    """One process from its start until it is reaped."""

    def __init__(self, name: str, process: Process, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._process = process
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._pipes = [pipe for pipe in pipes if pipe is not None]
        self._input, self._output, *self._errors = (pipe.fileno() for pipe in self._pipes)
        for pipe in (self._output, *self._errors):
            os.set_blocking(pipe, False)
        self._buffer = bytearray()
        self.killed = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, message: object) -> None:
        """Write one line. Raises `SourceError` with the child's last message if it has ended."""
        try:
            os.write(self._input, json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._ended() from error

    def line(self, limit: float, wake: int) -> bytes | None:
        """The next line from it; None after the time limit, or once `wake` is readable.

        Raises `SourceError` with the child's last message if it has ended.
        """
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(wake, select.POLLIN)
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            ready = poll.poll(max(0.0, limit - self._clock()) * 1000)
            if not ready or any(pipe == wake for pipe, _ in ready):
                return None
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._output, 1 << 16)
                if not data:
                    raise self._ended()
                self._buffer += data
            if len(self._buffer) > MAX_LINE:
                raise SourceError(f"the answer of {self._name} has no end")
        answer = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return answer

    def terminate(self) -> None:
        """Ask it to end.  Safe in a signal handler."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it, once: a second signal makes no difference."""
        if not self.killed:
            self.killed = True
            self._process.kill()

    def reap(self, timeout: float | None = 0.0) -> bool:
        """Reap it; returns whether it is gone within the timeout, if there is one."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        return True

    def _ended(self) -> SourceError:
        words = ""
        with contextlib.suppress(OSError):
            for pipe in self._errors:
                words = os.read(pipe, 1 << 16).decode("utf-8", "replace").strip()
        reason = words.rpartition("\n")[2] or "no reason given"
        return SourceError(f"{self._name} has ended: {reason}")
