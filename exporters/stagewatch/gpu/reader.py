"""The agent's side of the GPU reader: a child process that may hang, asked with a deadline.

A call of the NVIDIA driver can block for ever, in a state in which not even SIGKILL helps.  So:

* every request has a deadline; past it the child is killed, once, and `Stuck` is raised;
* no second child is started while the first has not been reaped, since it would only hang as well;
* after a failure the next start waits, longer each time and with jitter, since starting and
  killing clients has itself been seen to wedge the driver.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stagewatch.core.errors import NoData, SourceError, StagewatchError, Stuck
from stagewatch.core.piped_child import PipedChild

SHORT = 0.3
"""Seconds to wait for a healthy child to end."""


class Released(StagewatchError):
    """The driver has been let go of on request, so that a GPU can be reset."""


def child_command() -> list[str]:
    """The command of the reader process."""
    return [sys.executable, "-m", "stagewatch.gpu.nvml.child", str(os.getpid())]


class GpuReader:
    """Asks the child for frames.

    One thread calls `read`, and must live as long as the reader, since the kernel kills the child
    together with the thread that started it.  Any thread may call `release` and `close`.
    """

    def __init__(
        self,
        *,
        timeout: float = 5.0,
        start_timeout: float = 30.0,
        backoff: tuple[float, float] = (5.0, 300.0),
        release_file: Path | None = None,
        command: Callable[[], Sequence[str]] = child_command,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._backoff = backoff
        self._release_file = release_file
        self._command = command
        self._clock = clock
        self._child: PipedChild | None = None
        self._answered = False
        self._leave_by: float | None = None
        self._failures = 0
        self._not_before = 0.0
        self._error: StagewatchError | None = None
        self._released_until = 0.0
        self._closed = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the child, if there is one."""
        child = self._child
        return None if child is None else child.pid

    def read(self, tiers: Sequence[str]) -> dict[str, Any]:
        """A frame of these tiers.

        Raises `Stuck` past the deadline and until a driver call has succeeded again, `Released`
        while the driver is let go of, `NoData` without driver or GPU, `SourceError` otherwise.
        """
        with self._lock:
            if self._closed.is_set():
                raise SourceError("the GPU reader is closed")
            if self._is_released():
                self._let_go()
                raise Released("the GPUs are released")
            child = self._ready()
            try:
                frame = self._ask(child, tiers)
            except StagewatchError as error:
                if self._is_released():
                    self._reap()
                    raise Released("the GPUs are released") from error
                self._failed(error)
                raise
            self._answered = True
            self._failures = 0
            self._error = None
            return frame

    def release(self, seconds: float) -> None:
        """Let go of the driver for so long.  Safe in a signal handler; returns at once."""
        self._released_until = self._clock() + seconds
        child = self._child
        if child is not None:
            child.terminate()

    def close(self) -> None:
        """End the child, waiting at most a second in all, and never for the driver."""
        if self._closed.is_set():
            return
        self._closed.set()
        os.write(self._wake_write, b"x")
        unused = self._lock.acquire(timeout=SHORT)
        child = self._child
        if child is not None:
            child.terminate()
            if not child.reap(SHORT):
                child.kill()
                child.reap(SHORT)
        if unused:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._lock.release()

    def _is_released(self) -> bool:
        file = self._release_file
        return self._clock() < self._released_until or (file is not None and file.exists())

    def _let_go(self) -> None:
        """Make the child leave: politely first, by force when its time is up."""
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

    def _ready(self) -> PipedChild:
        """The child to ask, started if need be."""
        child = self._child
        if child is not None:
            if not child.killed and self._leave_by is None:
                return child
            if not self._reap():
                raise Stuck(
                    f"the GPU reader (pid {child.pid}) does not end: "
                    "it sits in a call of the NVIDIA driver that cannot be interrupted"
                )
        if self._error is not None and self._clock() < self._not_before:
            raise type(self._error)(*self._error.args)
        self._answered = False
        self._leave_by = None
        self._child = PipedChild(self._command(), clock=self._clock)
        return self._child

    def _ask(self, child: PipedChild, tiers: Sequence[str]) -> dict[str, Any]:
        timeout = self._timeout if self._answered else self._start_timeout
        request = json.dumps({"tiers": list(tiers)}).encode()
        answer = child.ask(request, self._clock() + timeout, self._wake_read)
        if self._closed.is_set():
            raise SourceError("the GPU reader is closed")
        if answer is None:
            raise Stuck(f"the NVIDIA driver has not answered for {timeout:g} s")
        try:
            frame: dict[str, Any] = json.loads(answer)
        except ValueError as error:
            raise SourceError("the GPU reader wrote something else than JSON") from error
        if "error" in frame:
            raise (NoData if frame["kind"] == "no_data" else SourceError)(frame["error"])
        return frame

    def _failed(self, error: StagewatchError) -> None:
        """Kill the child, and put the next start off."""
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
        """Whether the child is gone for good, or is so within the time-out."""
        if self._child is None or self._child.reap(timeout):
            self._child = None
            return True
        return False
