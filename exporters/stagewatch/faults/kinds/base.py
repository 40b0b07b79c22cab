"""What a kind of fault declares."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stagewatch.core import config
from stagewatch.core.errors import ConfigError
from stagewatch.faults.steps import Step


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
