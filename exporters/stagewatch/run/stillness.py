"""Notices that no process of a command does anything any more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from stagewatch.core.words import ranges, whole
from stagewatch.host.procfs import ProcessStat
from stagewatch.inspect.processes import stand_still

STILL_SECONDS = 30.0
"""How long all processes must do nothing before that is reported."""
AFTER_SECONDS = 30.0
"""How long after a standstill a command may end because of it: signals wake processes up."""


@dataclass(frozen=True, slots=True)
class Still:
    """A standstill of all processes, from `since` to `until`; seconds of the monotonic clock."""

    since: float
    until: float
    count: int
    asleep: tuple[int, ...] = ()
    """The ranks that did not run at all, if other ranks ran without any work; then `count` is the
    number of ranks."""

    @property
    def sentence(self) -> str:
        """The standstill in words."""
        seconds = whole(self.until - self.since)
        if self.asleep:
            slept = f"rank{'s' * (len(self.asleep) > 1)} {ranges(self.asleep)} did not run at all"
            others = ": the rest spins, or computes in place" * (len(self.asleep) < self.count)
            return (
                f"its {self.count} ranks moved no data and took no memory for {seconds}, and "
                f"{slept}{others}"
            )
        if self.count == 1:
            return f"its only process did nothing for {seconds}"
        return f"none of its {self.count} processes did anything for {seconds}"


class Stillness:
    """Compares one look at all processes of a command with the last."""

    def __init__(self) -> None:
        self._before: Mapping[int, ProcessStat] = {}
        self._looked_at = self._active_at = time.monotonic()
        self._still: Still | None = None

    def look(
        self, processes: Mapping[int, ProcessStat], of_ranks: Still | None = None
    ) -> Still | None:
        """The present standstill, once it has lasted long; `of_ranks`: that of ranks, of which some
        may run."""
        now = time.monotonic()
        seconds, self._looked_at = now - self._looked_at, now
        same = processes.keys() == self._before.keys()
        if not same or not stand_still(self._before, processes, max(seconds, 1.0)):
            self._active_at = now
        self._before = processes
        still = of_ranks
        if still is None and now - self._active_at >= STILL_SECONDS:
            still = Still(self._active_at, now, len(processes))
        self._still = still or self._still
        return still

    def lately(self) -> Still | None:
        """The last standstill, if it ended just now."""
        still = self._still
        recent = still is not None and time.monotonic() - still.until < AFTER_SECONDS
        return still if recent else None
