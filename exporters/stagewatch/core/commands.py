"""Commands with a deadline and a limit on their output, one at a time."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from stagewatch.core.errors import SourceError, Stuck

MAX_OUTPUT = 512 * 1024 * 1024
"""Most bytes of output; a command that prints more is killed."""

_MAX_COMPLAINT = 64 * 1024


class NoAnswer(SourceError):
    """The command was killed at its deadline."""


@dataclass(slots=True)
class CommandRunner:
    """Runs one command at a time, in a fixed environment."""

    environ: Mapping[str, str]
    max_output: int = MAX_OUTPUT
    _unreaped: subprocess.Popen[bytes] | None = None
    _running: subprocess.Popen[bytes] | None = None
    _closed: bool = False

    def run(self, argv: Sequence[str], timeout: float, *, accept_status: bool = False) -> bytes:
        """Run a command, and return what it prints on standard output.

        With `accept_status`, a command that fails but has printed something counts as answered.

        Raises `SourceError` if it is missing, fails, prints too much or misses its deadline of
        `timeout` seconds; `Stuck` while a killed command has not ended. A repeated failure has the
        same message every time.
        """
        name = argv[0].rpartition("/")[2]
        self._wait_for_killed(name)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environ),
                cwd="/",
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise SourceError(f"{argv[0]} is not installed, or not on PATH") from error
        except OSError as error:
            raise SourceError(f"{argv[0]} cannot be run: {error.strerror}") from error
        self._running = process
        if self._closed:  # while the command was being started
            _kill_group(process)
        try:
            output = self._finish(process, name, timeout, accept_status)
        finally:
            self._running = None
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return output

    def close(self) -> None:
        """Kill the command that runs or is about to run, from another thread; no `run` may "
        "follow."""
        self._closed = True
        process = self._running
        if process is not None:
            _kill_group(process)

    def _finish(
        self, process: subprocess.Popen[bytes], name: str, timeout: float, accept_status: bool
    ) -> bytes:
        out, err = BytesIO(), BytesIO()  # what they hold is had without a copy
        ended = _read(process, timeout, self.max_output, out, err)
        output, complaint = out.getvalue(), err.getvalue()
        if not ended:
            self._kill(process)
            if len(output) > self.max_output:
                limit = self.max_output >> 20
                raise SourceError(f"{name} printed more than {limit} MiB and was killed")
            raise NoAnswer(f"{name} gave no answer within {timeout:g} s and was killed")
        if process.returncode != 0 and not (accept_status and output):
            raise SourceError(f"{name} failed ({_status(process)}): {_one_line(complaint)}")
        return output

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        _kill_group(process)
        try:
            process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._unreaped = process

    def _wait_for_killed(self, name: str) -> None:
        if self._unreaped is None:
            return
        if self._unreaped.poll() is None:
            raise Stuck(f"{name} was killed but does not go away; not started again until it does")
        self._unreaped = None


def _read(
    process: subprocess.Popen[bytes], timeout: float, limit: int, out: BytesIO, err: BytesIO
) -> bool:
    """Read standard output and error; returns whether the process ended by itself in time."""
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for pipe, printed in ((process.stdout, out), (process.stderr, err)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, printed)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                return False
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 20)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.data is out or err.tell() < _MAX_COMPLAINT:
                    key.data.write(chunk)
            if out.tell() > limit:
                return False
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _status(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"signal {-code}" if code < 0 else f"status {code}"


def _one_line(complaint: bytes) -> str:
    """The last line of standard error, without the parts that vary."""
    lines = complaint.decode(errors="replace").strip().splitlines()
    last = lines[-1].strip()[:300] if lines else "it said nothing"
    return re.sub(r"^\S+: error: (?=\S)", "", last)
