"""A child process that answers lines on its input with lines on its output, and may never answer.

Everything here ends within the time it is given, whatever the child does.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import stagewatch
from stagewatch.core.errors import SourceError

MAX_LINE = 16 << 20
"""Longest answer in bytes; more than that is no answer."""


class PipedChild:
    """One child, from its start until it is reaped.  It sees this very package."""

    def __init__(self, command: Sequence[str], *, clock: Callable[[], float] = time.monotonic):
        package = str(Path(stagewatch.__path__[0]).resolve().parent)
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        self._clock = clock
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",  # `python -m` imports from the working directory first
            env={**os.environ, "PYTHONPATH": path},
        )
        self._input, self._output, self._errors = (
            pipe.fileno()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
            if pipe is not None
        )
        for pipe in (self._output, self._errors):
            os.set_blocking(pipe, False)
        self._buffer = b""
        self.killed = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, line: bytes, limit: float, wake: int) -> bytes | None:
        """The answer to a line, or None past the limit of the clock.

        Returns early, also with None, when the descriptor `wake` becomes readable.  Raises
        `SourceError` with the child's last words when it has ended.
        """
        try:
            os.write(self._input, line + b"\n")
        except OSError as error:
            raise self._ended() from error
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while (end := self._buffer.find(b"\n")) < 0:
            left = limit - self._clock()
            if left <= 0:
                return None
            if any(ready == wake for ready, _ in poll.poll(left * 1000)):
                return None
            with contextlib.suppress(BlockingIOError):
                got = os.read(self._output, 1 << 16)
                if not got:
                    raise self._ended()
                self._buffer += got
            if len(self._buffer) > MAX_LINE:
                raise SourceError("the GPU reader's reply has no end")
        answer, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return answer

    def terminate(self) -> None:
        """Ask it to end, between two calls of the driver.  Safe in a signal handler."""
        self._process.terminate()

    def kill(self) -> None:
        """End it by force, once: no second signal makes a difference."""
        if not self.killed:
            self.killed = True
            self._process.kill()

    def reap(self, timeout: float = 0.0) -> bool:
        """Whether it is gone for good, or is so within the time-out."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return True

    def _ended(self) -> SourceError:
        with contextlib.suppress(OSError):
            text = os.read(self._errors, 1 << 16).decode("utf-8", "replace").strip()
            if text:
                return SourceError(f"the GPU reader ended: {text.rpartition(chr(10))[2]}")
        return SourceError("the GPU reader ended: no reason given")
