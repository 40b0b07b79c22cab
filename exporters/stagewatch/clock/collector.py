"""Whether the node's clock can be trusted, by adjtimex(2), read only.

Ranks that leave a loop by the wall clock hang a job where their clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable

from stagewatch.core.adjtimex import adjtimex
from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples, gauge

OFFSET = gauge(
    "clock_offset_seconds",
    "Offset from the time source that the kernel is still correcting.",
)
MAX_ERROR = gauge(
    "clock_max_error_seconds", "Largest possible error of the clock, by the kernel's estimate."
)
SYNCHRONIZED = gauge("clock_synchronized", "1 if a time source keeps the clock synchronized.")

_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class ClockCollector(Collector):
    """The kernel's clock state."""

    def __init__(self, ask: Callable[[], tuple[int, ...]] = adjtimex) -> None:
        self._ask = ask

    def collect(self) -> Samples:
        try:
            state, offset, max_error, status = self._ask()
        except OSError as error:
            raise SourceError(f"adjtimex: {error.strerror}") from error
        out = Samples()
        out.add(OFFSET, offset * (1e-9 if status & _STA_NANO else 1e-6))
        out.add(MAX_ERROR, max_error * 1e-6)
        out.add(SYNCHRONIZED, int(state != _TIME_ERROR and not status & _STA_UNSYNC))
        return out


SPEC = Declaration(
    name="clock",
    help="clock offset, error and synchronisation (adjtimex)",
    interval=10.0,
    options=NoOptions,
)
