"""What a collector is, and how one is declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from stagewatch.core.config import OptionsClass, Setting, fill, option, settings_of
from stagewatch.core.exposition import Samples

Page = Literal["", "ranks", "gpus", "faults", "verdicts", "cluster"]


class Collector(ABC):
    """Turns one part of the node into samples, on an interval of its own.

    Everything external (paths, clocks, clients) is a constructor argument.  The runner times the
    calls and catches what they raise; a collector neither logs nor sleeps nor starts threads.
    """

    shown_seconds = 0.0
    """For how long its samples are shown where a run may take longer than three intervals."""

    @abstractmethod
    def collect(self) -> Samples:
        """Read once.

        Raises `NoData` where the node has nothing of the kind, `Stuck` when a call was given up
        at its deadline, and another `StagewatchError` for any other failure.  Partial data beats
        an error: whatever can be read is returned, with `denied` where some may not be.
        """

    def release(self) -> None:  # noqa: B027 - most collectors hold no device
        """Let go of devices for a while, so that a reset can go ahead; returns at once."""

    def close(self) -> None:  # noqa: B027 - most collectors hold nothing
        """Let go of what this collector alone holds; called once, possibly from another thread."""


Options = TypeVar("Options", bound=OptionsClass)
Context_contra = TypeVar("Context_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What can be set of every collector; the defaults are those of its declaration."""

    enabled: bool = option(True, "run this collector")
    interval: float = option(1.0, "time between two collections")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnySpec(ABC, Generic[Context_contra]):
    """The declaration of a collector without the type of its options: what lists are made of."""

    name: str
    help: str
    interval: float
    """Default time between two collections, in seconds."""
    default: bool = True
    """Whether it runs unless it is switched off."""
    page: Page = ""
    """The part of the status page that its series make."""

    @property
    def prefix(self) -> str:
        """What the keys of its settings begin with."""
        return f"collector.{self.name}."

    def settings(self) -> tuple[Setting, ...]:
        """Whether and when it runs, and its own options."""
        enabled, interval = settings_of(Schedule, self.prefix)
        return (
            replace(enabled, default=self.default),
            replace(interval, default=float(self.interval)),
            *self._own_settings(),
        )

    def schedule(self, values: Mapping[str, object]) -> Schedule:
        """Whether and when it runs, out of resolved values by key."""
        return fill(Schedule, values, self.prefix)

    @abstractmethod
    def _own_settings(self) -> tuple[Setting, ...]:
        """The settings of its options."""

    @abstractmethod
    def make(self, values: Mapping[str, object], context: Context_contra) -> Collector:
        """The collector, out of resolved values by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSpec(AnySpec[Context_contra], Generic[Options, Context_contra]):
    """How a collector is configured and built.

    `options` is a frozen dataclass whose fields are made by `option(...)`; its instance, filled
    from flags, variables and the file, is handed to `build` along with what collectors share.
    """

    options: type[Options]
    build: Callable[[Options, Context_contra], Collector]

    def _own_settings(self) -> tuple[Setting, ...]:
        return tuple(settings_of(self.options, self.prefix))

    def make(self, values: Mapping[str, object], context: Context_contra) -> Collector:
        """The collector, out of resolved values by key."""
        return self.build(fill(self.options, values, self.prefix), context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration(Generic[Options]):
    """What a collector is, for an agent's list to add how it is built from what it needs."""

    name: str
    help: str
    interval: float
    options: type[Options]
    page: Page = ""

    def built(
        self, build: Callable[[Options, Context_contra], Collector]
    ) -> CollectorSpec[Options, Context_contra]:
        """The declaration for an agent's list; `build` makes the collector from its options and
        the agent's context."""
        return CollectorSpec(
            name=self.name,
            help=self.help,
            interval=self.interval,
            page=self.page,
            options=self.options,
            build=build,
        )


@dataclass(frozen=True, slots=True)
class NoOptions:
    """For what has nothing to set."""
