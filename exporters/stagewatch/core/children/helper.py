"""The agent's side of the helper process, in which everything runs that may block.

See `worker` for what it does. Asking for the state of its jobs never waits for a file system or a
network; it waits only a few seconds for the helper itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stagewatch.core.children.start import PACKAGES, bare_python, popen
from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.runner import STALE_AFTER


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the helper runs, and when; `function` is `module:name`, loaded at the helper's start."""

    function: str
    arguments: Mapping[str, Any]
    interval: float
    """Seconds between the starts of two runs."""
    deadline: float
    """Timeout of a run in seconds; its process is then killed."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job."""

    result: dict[str, Any] | None
    """The result of the last run that ended by itself."""
    age: float | None
    """Seconds since then."""
    hung: float | None
    """Seconds since the start of the phase in which a run timed out; `None` after a run has "
    "ended."""
    hung_since: float | None
    """The same as monotonic time, which all processes share."""
    hung_phase: str
    worker: list[int] | None
    """The process of the current run, by pid and start; it may belong to an earlier helper."""
    runs: int
    kills: int

    shown_for: float
    """Seconds in which the result is valid: three runs, and one that may hang."""

    @property
    def fresh(self) -> dict[str, Any] | None:
        """The result, unless it is too old."""
        return self.result if self.age is not None and self.age <= self.shown_for else None


class Helper(Supervisor):
    """One helper process for all collectors of an agent; thread-safe.

    It starts with the first question; `share` adds jobs before that. Its owner closes it.
    """

    def __init__(
        self,
        jobs: Mapping[str, JobSpec] | None = None,
        *,
        packages: Sequence[Path] = (PACKAGES,),
        timeout: float = 5.0,
        restart_after: float = 10.0,
    ) -> None:
        command = bare_python("stagewatch.core.children.worker", packages=packages)
        super().__init__(
            "the helper",
            lambda: popen(command),
            greeting=self._work,
            timeout=timeout,
            backoff=(restart_after, restart_after),
            patience=1.0,
        )
        self._jobs: dict[str, JobSpec] = dict(jobs or {})
        self._last: dict[str, JobState] = {}

    @property
    def names(self) -> Collection[str]:
        """The names of all jobs."""
        return self._jobs.keys()

    def share(self, owner: str, jobs: Mapping[str, JobSpec]) -> Jobs:
        """Add the jobs of a collector; it sees only its own."""
        self._jobs |= {f"{owner} {name}": job for name, job in jobs.items()}
        return Jobs(self, owner, jobs.keys())

    def states(self, prefix: str = "") -> dict[str, JobState]:
        """The state of the jobs whose names begin with `prefix`; starts the helper if needed.

        Raises `Stuck` if the helper does not answer, `SourceError` if it has ended.
        """
        return self.ask(prefix, self._note)

    def _note(self, answer: Mapping[str, Any]) -> dict[str, JobState]:
        states = {}
        for name, state in answer.items():
            job = self._jobs[name]
            shown_for = STALE_AFTER * job.interval + job.deadline
            states[name] = JobState(**state, shown_for=shown_for)
        self._last |= states
        return states

    def _work(self) -> dict[str, Any]:
        """All jobs for a new helper, with the workers that an earlier helper left behind."""
        left = {name: asdict(last) for name, last in self._last.items() if last.worker is not None}
        return {
            name: asdict(job) | {"left_behind": left.get(name)} for name, job in self._jobs.items()
        }


class Jobs:
    """The jobs of one collector."""

    def __init__(self, helper: Helper, owner: str, names: Collection[str]) -> None:
        self._helper = helper
        self._prefix = f"{owner} "
        self.names = tuple(names)

    def states(self) -> dict[str, JobState]:
        """The states by names without the owner's prefix."""
        states = self._helper.states(self._prefix)
        return {name.removeprefix(self._prefix): state for name, state in states.items()}
