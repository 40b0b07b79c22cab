"""The parts of an injection: a kind of fault plans steps, and every step can be undone.

A step is plain data, since the journal keeps it: if the process that did it dies, another one
undoes it.  Undoing is safe at any time and any number of times: before the step was done, half-way
through it, and after it was undone.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from stagewatch.core.config import Parse
from stagewatch.core.errors import ConfigError
from stagewatch.faults.tools import Commands, shown

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Step(abc.ABC):
    """One change to the machine or the cluster that can be undone."""

    survives_reboot: ClassVar[bool] = False
    """Whether there is still something to undo once the machine has been booted again."""
    in_network_namespace: ClassVar[bool] = False
    """Whether it holds in one network namespace only, and ends with that."""

    @abc.abstractmethod
    def doing(self) -> list[str]:
        """The commands or sentences that say what is done."""

    @abc.abstractmethod
    def undoing(self) -> list[str]:
        """The commands or sentences that say how it is undone; empty if it cannot be."""

    @abc.abstractmethod
    def do(self, commands: Commands) -> None:
        """Do it.  Raises `StagewatchError`."""

    @abc.abstractmethod
    def undo(self, commands: Commands) -> list[str]:
        """Undo it; returns what was done, or why nothing was.

        Raises `StagewatchError` if the caller must try again.
        """

    def over(self) -> str:
        """Why the fault has ended although nobody undid it; empty while it lasts."""
        return ""


class CommandStep(Step):
    """A step that one list of commands does and another list undoes."""

    __slots__ = ()

    @abc.abstractmethod
    def to_do(self) -> list[tuple[str, ...]]:
        """The commands that do it."""

    @abc.abstractmethod
    def to_undo(self) -> list[tuple[str, ...]]:
        """The commands that undo it, if it was done and nothing has changed since."""

    def doing(self) -> list[str]:
        return [shown(command) for command in self.to_do()]

    def undoing(self) -> list[str]:
        return [shown(command) for command in self.to_undo()]

    def do(self, commands: Commands) -> None:
        for command in self.to_do():
            commands.run(*command)


StepTypes = Mapping[str, type[Step]]
"""The types of step that may stand in a journal, by name."""


@dataclass(frozen=True, slots=True)
class Request:
    """A user's request for one injection."""

    id: str
    target: str
    seconds: float
    """How long the fault is to last; 0 for a kind that is over at once."""
    log: Path
    """The file that its helpers write to."""
    record_dir: Path
    """The directory of the stage records, which name the process of a rank."""

    @property
    def tool_seconds(self) -> int:
        """A tool's own time limit: a little longer, so that we end it first."""
        return int(self.seconds) + 10


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an injection, and its target."""

    steps: tuple[Step, ...]
    where: str
    """The target in words."""
    notes: tuple[str, ...] = ()
    """What a user should know before it happens."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Options]):
    """A kind of fault: its options, and the function that plans it."""

    name: str
    help: str
    target: str
    """What its target must be, for `--help` and error messages."""
    plan: Callable[[Request, Options], Plan]
    """Raises `StagewatchError` where the fault cannot be injected; changes nothing."""
    options: type[Options]
    """A dataclass of `stagewatch.core.config` options, which become the kind's flags."""
    lasts: bool = True
    """Whether the fault holds for a time and is undone then."""

    def refuse_target(self, request: Request) -> ConfigError:
        """The error for a target that is not as `target` says."""
        return ConfigError(f"--target {request.target!r}: must be {self.target}")


@dataclass(frozen=True, slots=True)
class Percent:
    """A share above 0 and up to 1, shown as a percentage."""

    ratio: float

    def __str__(self) -> str:
        return f"{self.ratio * 100:g}%"


def percent(value: Any) -> Percent:
    """a percentage above 0 and up to 100, such as 10, 10% or 0.5%"""
    number = float(str(value).removesuffix("%"))
    if not 0 < number <= 100:
        raise ValueError
    return Percent(number / 100)


def parsed(flag: str, value: str, parse: Parse) -> Any:
    """The value of a flag.  Raises `ConfigError` with the flag's name and the accepted values."""
    try:
        return parse(value)
    except ValueError as error:
        raise ConfigError(f"{flag} {value!r}: must be {parse.__doc__}") from error
