"""Collectors that do as they are told."""

from __future__ import annotations

import threading

from stagewatch.core.collector import Collector
from stagewatch.core.exposition import Metric, Samples
from tests.fake_clock import Clock

VALUE = Metric("test_value_ratio", "gauge", "A value.")


class Scripted(Collector):
    """Does what it is told: returns a value, raises, or lets time pass first."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock
        self.does: float | BaseException = 1.0
        self.takes = 0.0
        self.calls = 0
        self.closed = 0

    def collect(self) -> Samples:
        self.calls += 1
        if self.clock:
            self.clock.now += self.takes
        if isinstance(self.does, BaseException):
            raise self.does
        out = Samples()
        out.add(VALUE, self.does)
        return out

    def close(self) -> None:
        self.closed += 1


class Hangs(Scripted):
    """Never returns from its second call until it is released, like a driver that is wedged."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.inside = threading.Event()

    def collect(self) -> Samples:
        if self.calls:
            self.inside.set()
            self.release.wait()
        return super().collect()
