"""What an injection is made of: steps that say what they do, do it, and can be undone.

A step is plain data, since the journal keeps it: whoever undoes it may be another process, after
the death of the one that did it.  Undoing is safe at any time and any number of times: before the
step was done, half-way through it, and after it was undone.
"""

from __future__ import annotations

import abc
import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from stagewatch import config
from stagewatch.errors import ConfigError
from stagewatch.faults.tools import Commands


@dataclass(frozen=True, slots=True)
class Step(abc.ABC):
    """One change to the machine or the cluster, with the way back."""

    survives_reboot: ClassVar[bool] = False
    """Whether there is still something to undo once the machine has been booted again."""
    in_network_namespace: ClassVar[bool] = False
    """Whether it holds in one network namespace, and is gone with it."""

    @abc.abstractmethod
    def doing(self) -> list[str]:
        """What is done, as commands or sentences."""

    @abc.abstractmethod
    def undoing(self) -> list[str]:
        """What is done to undo it; empty where nothing can be."""

    @abc.abstractmethod
    def do(self, commands: Commands) -> None:
        """Do it.  Raises `StagewatchError`."""

    @abc.abstractmethod
    def undo(self, commands: Commands) -> list[str]:
        """Undo what there is to undo; returns what was done for it, or why nothing was.

        Raises `StagewatchError` where it must be tried again.
        """

    def over(self) -> str:
        """Why the fault holds no longer although nobody undid it; empty while it holds."""
        return ""


StepTypes = Mapping[str, type[Step]]
"""The types of step that may stand in a journal, by name."""


def encode(step: Step) -> dict[str, Any]:
    """A step as JSON can hold it."""
    return {"step": type(step).__name__, **asdict(step)}


def decode(content: dict[str, Any], types: StepTypes) -> Step:
    """The step again.  Raises `ValueError` or `TypeError` for what is none of these types."""
    fields = {key: _frozen(value) for key, value in content.items()}
    name = fields.pop("step", None)
    if name not in types:
        raise ValueError(f"no step {name!r}")
    return types[name](**fields)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Request:
    """One injection that is asked for."""

    id: str
    target: str
    seconds: float
    """How long it is to last; 0 for a kind that is over at once."""
    log: Path
    """Where its helpers write."""
    options: argparse.Namespace

    @property
    def tool_seconds(self) -> int:
        """The limit a tool is given for itself: a little longer, so that it is ended by us."""
        return int(self.seconds) + 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, and to what."""

    steps: tuple[Step, ...]
    where: str
    """The target in words."""
    notes: tuple[str, ...] = ()
    """What one should know before it happens."""


def no_options(parser: argparse.ArgumentParser) -> None:
    """A kind without flags of its own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault; `target` explains what its target is."""

    name: str
    help: str
    target: str
    plan: Callable[[Request], Plan]
    add_options: Callable[[argparse.ArgumentParser], None] = no_options
    lasts: bool = True
    """Whether there is something that holds for a time, and is undone then."""


def size(flag: str, value: str) -> int:
    """Bytes.  Raises `ConfigError` naming the flag."""
    try:
        number = config.size(value)
    except ValueError as error:
        raise ConfigError(f"{flag} {value!r}: must be {config.size.__doc__}") from error
    return number


def duration(flag: str, value: str) -> float:
    """Seconds.  Raises `ConfigError` naming the flag."""
    try:
        return config.duration(value)
    except ValueError as error:
        raise ConfigError(f"{flag} {value!r}: must be {config.duration.__doc__}") from error


def percent(flag: str, value: str) -> float:
    """A share above 0 up to 1, from `10`, `10%` or `0.5%`.  Raises `ConfigError`."""
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = float("nan")
    if not 0 < number <= 100:
        raise ConfigError(f"{flag} {value!r}: must be a percentage above 0 and up to 100")
    return number / 100


def human(size: float) -> str:
    """A size for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
