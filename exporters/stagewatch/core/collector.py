"""What a collector is, and how one is declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Literal, TypeVar

from stagewatch.core.config import OptionsClass, Setting, fill, option, settings_of
from stagewatch.core.exposition import Samples

Page = Literal["", "ranks", "gpus", "verdicts"]


class Collector(ABC):
    """Turns one part of the node into samples, on an interval of its own.

    Everything external (paths, clocks, clients) is a constructor argument.  The runner times the
    calls and catches what they raise; a collector neither logs nor sleeps nor starts threads.
    """

    shown_seconds = 0.0
    """How long its samples are shown, if a run may take longer than three intervals."""

    @abstractmethod
    def collect(self) -> Samples:
        """Read once.

        Raises `NoData` if the node has nothing to read, `Stuck` if a call missed its deadline, and
        another `StagewatchError` for any other failure. Partial data beats an error: it returns
        whatever it can read, and counts in `denied` what it may not read.
        """

    def close(self) -> None:  # noqa: B027 - most collectors hold nothing
        """Release what only this collector holds; called once, possibly from another thread."""


Options = TypeVar("Options", bound=OptionsClass)
Context_contra = TypeVar("Context_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The settings of every collector; the defaults come from its declaration."""

    enabled: bool = option(True, "run this collector")
    interval: float = option(1.0, "time between two collections")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration(Generic[Options]):
    """A collector's declaration; an agent's list adds how to build it."""

    name: str
    help: str
    interval: float
    """Default time between two collections, in seconds."""
    options: type[Options]
    page: Page = ""
    """The part of the status page that shows its series."""
    default: bool = True
    """Whether it runs by default."""

    @property
    def prefix(self) -> str:
        """The prefix of its settings' keys."""
        return f"collector.{self.name}."

    def settings(self) -> tuple[Setting, ...]:
        """Whether and when it runs, and its own options."""
        enabled, interval = settings_of(Schedule, self.prefix)
        return (
            replace(enabled, default=self.default),
            replace(interval, default=float(self.interval)),
            *settings_of(self.options, self.prefix),
        )

    def schedule(self, values: Mapping[str, object]) -> Schedule:
        """Whether and when it runs, from resolved values by key."""
        return fill(Schedule, values, self.prefix)

    def built(
        self, build: Callable[[Options, Context_contra], Collector]
    ) -> CollectorSpec[Context_contra]:
        """The declaration for an agent's list; `build` makes the collector from its options and
        the agent's context."""
        declared = {each.name: getattr(self, each.name) for each in fields(self)}
        return CollectorSpec(**declared, build=build)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSpec(Declaration[Any], Generic[Context_contra]):
    """A declaration with the function that builds the collector.

    `options` is a frozen dataclass whose fields are made by `option(...)`; its instance, filled
    from flags, variables and the file, is passed to `build` with the agent's context.
    """

    build: Callable[[Any, Context_contra], Collector]

    def make(self, values: Mapping[str, object], context: Context_contra) -> Collector:
        """The collector, from resolved values by key."""
        return self.build(fill(self.options, values, self.prefix), context)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """No options."""
