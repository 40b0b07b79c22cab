"""What an injection is made of: steps that say what they do, do it, and can be undone.

A step is plain data, since the journal keeps it: whoever undoes it may be another process, after
the death of the one that did it.  Undoing is safe at any time and any number of times: before the
step was done, half-way through it, and after it was undone.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from stagewatch.faults.commands import Commands


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
