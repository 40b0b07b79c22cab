"""What a collector is, and how one is declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stagewatch.core.exposition import Samples


class Collector(ABC):
    """Turns one part of the node into samples, on an interval of its own.

    Everything external (paths, clocks, clients) is a constructor argument.  The runner times the
    calls and catches what they raise; a collector neither logs nor sleeps nor starts threads.
    """

    @abstractmethod
    def collect(self) -> Samples:
        """Read once.

        Raises `NoData` where the node has nothing of the kind, `Stuck` when a call was given up
        at its deadline, and another `StagewatchError` for any other failure.  Partial data beats
        an error: whatever can be read is returned.
        """

    def close(self) -> None:  # noqa: B027 - most collectors hold nothing
        """Let go of child processes and descriptors; called once, possibly from another thread."""


@dataclass(frozen=True, slots=True)
class CollectorSpec:
    """How a collector is found, configured and built.

    `options` is a frozen dataclass whose fields carry `option(...)` metadata; its instance, filled
    from flags, variables and the file, is handed to `build` along with the agent's own options.
    """

    name: str
    help: str
    interval: float
    """Default time between two collections, in seconds."""
    options: type[Any]
    build: Callable[[Any, Any], Collector]
    default: bool = True


@dataclass(frozen=True, slots=True)
class NoOptions:
    """For collectors with nothing to set."""
