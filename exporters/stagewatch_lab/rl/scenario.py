"""A fault that is injected into a running job, and the expected diagnosis."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from stagewatch_lab.rl.job import RlJob
from stagewatch_lab.rl.lab import RlLab


@dataclass(frozen=True, slots=True)
class Surface:
    """Where a fault shows in the logs, which is not where it began."""

    role: str
    stage: str
    error: str
    """Type of the exception that leaves the stage."""
    message: str
    """The message in its log."""


class Scenario(ABC):
    """One fault in one job.  The job is started by `start`, healthy."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Its number in the table of scenarios."""
    summary: ClassVar[str]
    fault_type: ClassVar[str]
    expected_failure_stage: ClassVar[str]
    stage: ClassVar[str]
    """Stage of the step in which the fault begins, as the controller's log calls it."""
    naming: ClassVar[tuple[str, ...]]
    """Alerts that may name the origin; any one is enough."""
    surface: ClassVar[Surface]
    """The expected symptom."""
    worker: ClassVar[tuple[str, int]]
    """Role and rank where the fault begins; the last rank of a smaller job."""
    cpu_share: ClassVar[float] = 0.05

    def __init__(self, lab: RlLab, job: RlJob) -> None:
        self.lab = lab
        self.job = job
        self.means: list[str] = []
        """What was done, in words."""

    @property
    def rank(self) -> int:
        """The rank of the worker in this job."""
        role, wanted = self.worker
        size = self.job.plan.trains if role == "train" else self.job.plan.rollouts
        return min(wanted, size - 1)

    @property
    def target(self) -> str:
        """The worker or mount with the fault, for its marker."""
        return f"{self.worker[0]}_worker_{self.rank}"

    @property
    def origin(self) -> dict[str, str]:
        """Labels of an alert that names the origin."""
        return {"role": self.worker[0], "rank": str(self.rank)}

    def prepare(self) -> None:  # noqa: B027
        """Prepare what is needed before the job starts, without disturbing it.

        Raises `StagewatchError` if this machine lacks something for the fault.
        """

    @abstractmethod
    def inject(self) -> None:
        """Inject the fault."""

    def advance(self, seconds: float) -> None:  # noqa: B027
        """Continue the fault; called now and then with the seconds since `inject`."""

    def names(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with these labels names the origin."""
        return self.origin.items() <= labels.items()

    @abstractmethod
    def revert(self) -> None:
        """Undo the fault, even if `inject` failed half-way."""

    def close(self) -> None:  # noqa: B027
        """Remove what `prepare` left outside of the lab's directory; the job has ended."""

    def hold_up(self, name: str, target: str, control: str) -> None:
        """Start a proxy before a listener, which publishes itself as `name` and reads `control`."""
        self.run("slow_proxy", str(self.job.plan.save()), name, target, str(self.control(control)))

    def run(
        self, module: str, *arguments: str, around: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a helper of the fault; `around` is a command that runs it."""
        program = (*around, sys.executable, "-m", f"stagewatch_lab.rl.{module}", *arguments)
        return self.lab.children.start(program, log=self.job.plan.directory / f"{module}.log")

    def control(self, name: str) -> Path:
        """A file of this job that controls a helper."""
        return self.job.plan.directory / f"{name}.control"
