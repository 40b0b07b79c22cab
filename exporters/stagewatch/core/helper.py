"""The agent's side of the helper process, in which everything runs that may block.

See `helper_child` for what it does.  Asking it for the state of its jobs never waits for a file
system or a network, only for the helper itself, and for that not longer than a few seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import stagewatch
from stagewatch.core.errors import SourceError, Stuck

MAX_REPLY = 64 << 20
PACKAGES = Path(stagewatch.__path__[0]).parent
_START = (
    "import sys; sys.path += sys.argv[1:]; from stagewatch.core.helper_child import main; main()"
)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the helper is to run, and when; `function` is `module:name`, loaded at its start."""

    function: str
    arguments: Mapping[str, Any]
    interval: float
    """Seconds between the starts of two runs."""
    deadline: float
    """Seconds after which a run is given up and its process killed."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of a job."""

    result: dict[str, Any] | None
    """Of the last run that ended by itself."""
    age: float | None
    """Seconds since then."""
    hung: float | None
    """Seconds since the phase began in which a run had to be given up; `None` once one ended."""
    hung_since: float | None
    """The same by the monotonic clock, which all processes share."""
    hung_phase: str
    worker: list[int] | None
    """The process of the run under way, by pid and start; also one that an earlier helper left."""
    runs: int
    kills: int

    def fresh(self, limit: float) -> dict[str, Any] | None:
        """The result, unless it is older than `limit` seconds."""
        return self.result if self.age is not None and self.age <= limit else None


class Jobs(Protocol):
    """The jobs of one collector."""

    @property
    def names(self) -> Collection[str]:
        """Of the jobs."""

    def states(self) -> dict[str, JobState]:
        """What is known of each; see `Helper.states`."""


class Helper:
    """One helper process for all collectors of an agent, safe to use from any thread.

    It is started with the first question; `share` adds jobs before that.
    """

    def __init__(
        self,
        jobs: Mapping[str, JobSpec] | None = None,
        *,
        packages: Sequence[Path] = (PACKAGES,),
        timeout: float = 5.0,
        start_timeout: float = 30.0,
        restart_after: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs: dict[str, JobSpec] = dict(jobs or {})
        self._last: dict[str, JobState] = {}
        self._packages = [str(path.resolve()) for path in packages]
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._answered = False
        self._restart_after = restart_after
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._started: float | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the helper, if there is one."""
        child = self._child
        return None if child is None else child.pid

    @property
    def names(self) -> Collection[str]:
        """Of all jobs."""
        return self._jobs.keys()

    def share(self, owner: str, jobs: Mapping[str, JobSpec]) -> Jobs:
        """Jobs of a collector, which gets to see no others."""
        self._jobs |= {f"{owner} {name}": job for name, job in jobs.items()}
        return _Shared(self, owner, jobs.keys())

    def states(self, prefix: str = "") -> dict[str, JobState]:
        """The state of the jobs whose names begin so; starts the helper where there is none.

        Raises `Stuck` if the helper does not answer, `SourceError` if it has ended.
        """
        with self._lock:
            child = self._running()
            try:
                reply = self._ask(child, prefix)
            except SourceError:
                self._killed = True
                child.kill()
                raise
            states = {name: JobState(**state) for name, state in reply.items()}
            self._last |= states
        return states

    def close(self) -> None:
        """Let the helper clean up and end; waits at most two seconds."""
        self._closed = True
        child = self._child
        if child is None:
            return
        if self._lock.acquire(timeout=0.5):
            self._lock.release()
        self._close_pipes()
        try:
            child.wait(1.0)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.5)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise SourceError("the helper is closed")
        child = self._child
        if child is not None and child.poll() is None:
            if self._killed:
                raise Stuck("the helper was killed and has not ended yet")
            return child
        now = self._clock()
        if self._started is not None and now - self._started < self._restart_after:
            raise SourceError("the helper has ended; it will be started again shortly")
        self._started = now
        self._killed = self._answered = False
        self._close_pipes()
        self._child = child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, *self._packages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            bufsize=0,
        )
        self._send(child, {name: self._spec(name, job) for name, job in self._jobs.items()})
        return child

    def _spec(self, name: str, job: JobSpec) -> dict[str, Any]:
        last = self._last.get(name)
        left_behind = asdict(last) if last is not None and last.worker is not None else None
        return asdict(job) | {"left_behind": left_behind}

    def _close_pipes(self) -> None:
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _ask(self, child: subprocess.Popen[bytes], prefix: str) -> dict[str, Any]:
        self._send(child, prefix)
        assert child.stdout is not None  # noqa: S101 - opened above
        timeout = self._timeout if self._answered else self._start_timeout
        limit = self._clock() + timeout
        reply = b""
        while not reply.endswith(b"\n"):
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, limit - self._clock()))
            if not ready:
                raise Stuck(f"the helper has not answered for {timeout:g} s")
            data = os.read(child.stdout.fileno(), 1 << 18)
            if not data or len(reply) > MAX_REPLY:
                raise SourceError("the helper has ended; it will be started again shortly")
            reply += data
        self._answered = True
        answer: dict[str, Any] = json.loads(reply)
        return answer

    @staticmethod
    def _send(child: subprocess.Popen[bytes], message: Any) -> None:
        assert child.stdin is not None  # noqa: S101 - opened above
        try:
            child.stdin.write(json.dumps(message).encode() + b"\n")
        except (OSError, ValueError) as error:
            raise SourceError("the helper has ended; it will be started again shortly") from error


class _Shared:
    def __init__(self, helper: Helper, owner: str, names: Collection[str]) -> None:
        self._helper = helper
        self._prefix = f"{owner} "
        self.names = tuple(names)

    def states(self) -> dict[str, JobState]:
        """Without the owner's name."""
        states = self._helper.states(self._prefix)
        return {name.removeprefix(self._prefix): state for name, state in states.items()}
