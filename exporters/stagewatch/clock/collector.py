"""Whether the node's clock can be trusted: ranks that leave a loop by the wall clock hang jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stagewatch.clock.adjtimex import ClockState, read_clock
from stagewatch.core.collector import Collector, CollectorSpec, NoOptions
from stagewatch.core.exposition import Metric, Samples

if TYPE_CHECKING:
    from stagewatch.node_context import NodeContext

OFFSET = Metric(
    "clock_offset_seconds",
    "gauge",
    "Offset from the time source that the kernel is still correcting.",
)
MAX_ERROR = Metric(
    "clock_max_error_seconds", "gauge", "The most the clock may be off by its own estimate."
)
SYNCHRONIZED = Metric(
    "clock_synchronized", "gauge", "1 if the clock is kept in step with a time source."
)
FREQUENCY = Metric(
    "clock_frequency_offset_ratio",
    "gauge",
    "Correction of the clock's rate: 0.00001 is ten microseconds a second.",
)
DRIFT = Metric(
    "clock_wall_drift_seconds",
    "gauge",
    "How far the wall clock has moved against the boot-time clock since the agent started; a jump "
    "is a stepped clock.",
)


class ClockCollector(Collector):
    """The kernel's clock state."""

    def __init__(
        self,
        *,
        read: Callable[[], ClockState] = read_clock,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._read = read
        self._wall = wall
        self._boot = boot
        self._difference = wall() - boot()

    def collect(self) -> Samples:
        out = Samples()
        out.add(DRIFT, self._wall() - self._boot() - self._difference)
        state = self._read()
        out.add(OFFSET, state.offset_seconds)
        out.add(MAX_ERROR, state.max_error_seconds)
        out.add(SYNCHRONIZED, int(state.synchronized))
        out.add(FREQUENCY, state.frequency_offset_ratio)
        return out


def _build(options: NoOptions, context: NodeContext) -> ClockCollector:
    return ClockCollector()


SPEC = CollectorSpec(
    name="clock",
    help="clock offset, drift and synchronisation (adjtimex)",
    interval=10.0,
    options=NoOptions,
    build=_build,
)
