"""A job of the helper process, and the worker that runs it; standard library only."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagewatch.core.job_report import Report

MAX_OUTPUT = 4 << 20
"""Most bytes that one run may report."""
REAP_SECONDS = 0.25
"""How often a killed worker is looked for."""

Function = Callable[[dict[str, Any], Any, Report], "dict[str, Any]"]
"""A job: its arguments, what earlier runs kept and a `Report`, to a result that JSON can hold."""


class Job:
    """One job, the worker that runs it, and what is known of its runs."""

    def __init__(self, spec: dict[str, Any], due: float) -> None:
        module, _, name = spec["function"].partition(":")
        self.function: Function = getattr(importlib.import_module(module), name)
        self.arguments: dict[str, Any] = spec["arguments"]
        self.interval: float = spec["interval"]
        self.deadline: float = spec["deadline"]
        self.due = due
        self.leftover: Any = None
        self.result: dict[str, Any] | None = None
        self.finished: float | None = None
        before: dict[str, Any] = spec["left_behind"] or {}
        self.left_behind: list[int] | None = before.get("worker")
        self.hung_since: float | None = before.get("hung_since")
        self.hung_phase: str = before.get("hung_phase", "")
        self.runs = 0
        self.kills = 0
        self._clear()

    def _clear(self) -> None:
        self.pid = 0
        self.pipe = -1
        self.output = b""
        self.killed = False
        self.started = 0.0
        self.phase = ""
        self.phase_since = 0.0

    def start(self, now: float) -> None:
        """Fork a worker for one run."""
        reader, writer = os.pipe()
        self.runs += 1
        self.due = now + self.interval
        # A signal must not find the worker with the helper's stack still to unwind.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        pid = os.fork()
        if pid == 0:
            _work(self, writer)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.close(writer)
        os.set_blocking(reader, False)
        self._clear()
        self.pid, self.pipe = pid, reader
        self.started = self.phase_since = now

    def read(self) -> None:
        """Take what the worker wrote; at its end, reap it."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return
        self.output += data
        if len(self.output) > MAX_OUTPUT:
            self.kill()
            self.output = b""
        *lines, self.output = self.output.split(b"\n")
        for line in lines:
            self._line(line)
        if not data:
            os.waitpid(self.pid, 0)  # the pipe closes with the process, so this does not wait
            os.close(self.pipe)
            self._clear()

    def _line(self, line: bytes) -> None:
        message = json.loads(line)
        if "phase" in message:
            self.phase, self.phase_since = message["phase"], message["since"]
        elif "leftover" in message:
            self.leftover = message["leftover"]
        elif not self.killed:
            self.result = message["result"]
            self.finished = time.monotonic()
            self.hung_since = None

    def kill(self) -> None:
        """End the worker, if that is possible at all; never tried twice."""
        if not self.killed:
            self.killed = True
            self.kills += 1
            os.kill(self.pid, signal.SIGKILL)

    def check(self, now: float) -> None:
        """Kill a worker past its deadline, and start the next run when it is due."""
        if self.left_behind is not None:
            if identity(self.left_behind[0]) == self.left_behind:
                return
            self.left_behind = None
        if self.pid and now - self.started > self.deadline and not self.killed:
            if self.hung_since is None:
                self.hung_since, self.hung_phase = self.phase_since, self.phase
            self.kill()
        if not self.pid and now >= self.due:
            self.start(now)

    def wake(self, now: float) -> float:
        """When this job needs attention next, if its worker says nothing before."""
        if self.left_behind is not None:
            return now + REAP_SECONDS
        if not self.pid:
            return self.due
        return now + REAP_SECONDS if self.killed else self.started + self.deadline + 0.001

    def state(self, now: float) -> dict[str, Any]:
        """What the agent is told."""
        return {
            "result": self.result,
            "age": None if self.finished is None else now - self.finished,
            "hung": None if self.hung_since is None else now - self.hung_since,
            "hung_since": self.hung_since,
            "hung_phase": self.hung_phase,
            "worker": identity(self.pid) if self.pid else self.left_behind,
            "runs": self.runs,
            "kills": self.kills,
        }


def identity(pid: int) -> list[int] | None:
    """A process by its pid and the time of its start; `None` once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else [pid, int(fields[19])]


def _work(job: Job, writer: int) -> None:
    """One run, in the worker; does not return."""
    code = 1
    try:
        _die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # or a hung worker would hold the helper's pipe open after its end

        report = Report(writer)
        report.send({"result": job.function(job.arguments, job.leftover, report)})
        code = 0
    except Exception as error:  # told to the agent's log, which is the helper's stderr
        print(f"stagewatch helper: {job.function.__module__}: {error!r}", file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
