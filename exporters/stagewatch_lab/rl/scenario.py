"""A fault that is injected into a running job, and the expected diagnosis."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
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
    cpu_share: ClassVar[float] = 0.05

    def __init__(self, lab: RlLab, job: RlJob) -> None:
        self.lab = lab
        self.job = job
        self.means: list[str] = []
        """What was done, in words."""

    @property
    @abstractmethod
    def target(self) -> str:
        """The worker or mount with the fault, for its marker."""

    @property
    @abstractmethod
    def origin(self) -> dict[str, str]:
        """Labels of an alert that names the origin."""

    @property
    @abstractmethod
    def surface(self) -> Surface:
        """The expected symptom."""

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
        self.lab.children.start(
            [
                *(sys.executable, "-m", "stagewatch_lab.rl.slow_proxy", str(self.job.plan.save())),
                *(name, target, str(self.control(control))),
            ],
            log=self.job.plan.directory / "proxy.log",
        )

    def control(self, name: str) -> Path:
        """A file of this job that controls a helper."""
        return self.job.plan.directory / f"{name}.control"


def rank_near(wanted: int, size: int) -> int:
    """The rank of the scenario, or the last one of a smaller job."""
    return min(wanted, size - 1)
