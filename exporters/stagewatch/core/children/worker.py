"""The helper process: it runs jobs that may block, each in its own short-lived process.

A call on a dead mount can wait for ever, in a state in which not even SIGKILL helps.  So nothing
that can block runs here: for every run of a job a worker is forked, and this process only watches.
A worker that misses its deadline is killed, once; its job does not start again until the worker is
reaped, since another one would only hang too.

It forks instead of starting programs, because everything is already loaded: it reads neither Python
nor this package again from a file system that may be dead.  It has a single thread, which is
what makes forking safe, and it uses the standard library only.

A worker that waits like this may outlive even the helper. The agent tells the next helper about it,
and the helper does not start that job before the worker is gone.

It speaks lines of JSON: the first line in is the list of jobs; each later line is a prefix of
names, and the answer is the state of the jobs with that prefix. The helper ends when its input
ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagewatch.core.processes import die_with_parent

MAX_OUTPUT = 4 << 20
"""Most bytes in the report of one run."""
REAP_SECONDS = 0.25
"""Interval of checks for a killed worker."""

SPREAD_SECONDS = 5.0
"""First runs are spread over this time, so that a hundred mounts are not all asked at once."""


class Report:
    """What a job reports while it runs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def phase(self, name: str) -> None:
        """Report the start of a phase; if the job hangs, it hangs in its last phase."""
        self.send({"phase": name, "since": time.monotonic()})

    def keep(self, leftover: Any) -> None:
        """Keep a value for the next run, even if this run fails."""
        self.send({"leftover": leftover})

    def send(self, message: dict[str, Any]) -> None:
        """Write one line, in as many writes as needed."""
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]


Function = Callable[[dict[str, Any], Any, Report], "dict[str, Any]"]
"""A job function: it takes arguments, the value that earlier runs kept and a `Report`, and "
"returns a result for JSON."""


class Job:
    """One job with its worker and the state of its runs."""

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
        self.due = now + self.interval
        # A signal must not find the worker with the helper's stack still to unwind.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        parent = os.getpid()
        pipe: tuple[int, ...] = ()
        try:
            pipe = os.pipe()
            pid = os.fork()
        except OSError as error:  # the limit of processes, of descriptors or of memory
            _say_once(f"no process can be started ({error.strerror}); trying again")
            for descriptor in pipe:
                os.close(descriptor)
            return
        finally:
            if os.getpid() == parent:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        reader, writer = pipe
        if pid == 0:
            _work(self, writer, parent)
        self.runs += 1
        _say_once("")
        os.close(writer)
        os.set_blocking(reader, False)
        self._clear()
        self.pid, self.pipe = pid, reader
        self.started = self.phase_since = now

    def read(self) -> None:
        """Read the worker's output; reap the worker at its end."""
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
        """Kill the worker, once."""
        if not self.killed:
            self.killed = True
            self.kills += 1
            os.kill(self.pid, signal.SIGKILL)

    def check(self, now: float) -> None:
        """Kill a worker that missed its deadline, and start the next run when it is due."""
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
        """When this job needs attention next, if its worker writes nothing before."""
        if self.left_behind is not None:
            return now + REAP_SECONDS
        if not self.pid:
            return self.due
        return now + REAP_SECONDS if self.killed else self.started + self.deadline + 0.001

    def state(self, now: float) -> dict[str, Any]:
        """The state for the agent."""
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
    """A process by pid and start time; `None` once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else [pid, int(fields[19])]


_said = ""


def _say_once(message: str) -> None:
    """Write to the agent's log, the helper's stderr, once per message; an empty message reports "
    "recovery."""
    global _said  # noqa: PLW0603 - one process, one thread
    if message != _said:
        print(f"stagewatch helper: {message or 'processes can be started again'}", file=sys.stderr)
        sys.stderr.flush()
    _said = message


def _work(job: Job, writer: int, parent: int) -> None:
    """Run the job once in the worker; does not return."""
    code = 1
    try:
        die_with_parent(parent)
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


def serve(jobs: dict[str, Job]) -> None:
    """Run the jobs and answer questions until the input ends."""
    question = b""
    os.set_blocking(0, False)
    while True:
        now = time.monotonic()
        for job in jobs.values():
            job.check(now)
        poll = select.poll()
        poll.register(0, select.POLLIN)
        readers = {job.pipe: job for job in jobs.values() if job.pid}
        for pipe in readers:
            poll.register(pipe, select.POLLIN)
        wake = min((job.wake(now) for job in jobs.values()), default=now + 60)
        for descriptor, _ in poll.poll(max(0.0, wake - now) * 1000 + 1):
            if descriptor:
                readers[descriptor].read()
                continue
            data = os.read(0, 1 << 16)
            if not data:
                return
            *questions, question = (question + data).split(b"\n")
            now = time.monotonic()
            for line in questions:
                prefix = json.loads(line)
                states = {
                    name: job.state(now) for name, job in jobs.items() if name.startswith(prefix)
                }
                sys.stdout.write(json.dumps(states) + "\n")
                sys.stdout.flush()


def leave(jobs: dict[str, Job]) -> None:
    """Give the workers a moment to clean up, then end them; a hung one is left to the kernel."""
    for job in jobs.values():
        if job.pid:
            os.kill(job.pid, signal.SIGTERM)
    limit = time.monotonic() + 0.5
    while time.monotonic() < limit and any(job.pid for job in jobs.values()):
        for job in jobs.values():
            if job.pid:
                job.read()
        time.sleep(0.01)
    for job in jobs.values():
        if job.pid:
            os.kill(job.pid, signal.SIGKILL)


def main() -> None:
    """Read the jobs, then serve."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # the agent decides on these
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(0, "rb", 0, closefd=False) as lines:  # unbuffered: what follows is not eaten
        specs = json.loads(lines.readline())
    now = time.monotonic()
    step = min(SPREAD_SECONDS / max(1, len(specs)), 0.5)
    jobs = {
        name: Job(spec, now + step * number) for number, (name, spec) in enumerate(specs.items())
    }
    signal.signal(signal.SIGTERM, _leave)
    try:
        with contextlib.suppress(BrokenPipeError):
            serve(jobs)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave(jobs)


def _leave(*_: object) -> None:
    raise SystemExit(0)
