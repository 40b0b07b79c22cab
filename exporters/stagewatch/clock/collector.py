"""Whether the node's clock can be trusted, by adjtimex(2), read only.

Ranks that leave a loop by the wall clock hang a job where their clocks differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class ClockState:
    """The state of the clock discipline, in seconds."""

    offset_seconds: float
    max_error_seconds: float
    synchronized: bool


def read_clock(ask: Callable[[], tuple[int, ...]] = adjtimex) -> ClockState:
    """Ask the kernel.  Raises `SourceError` where it refuses."""
    try:
        state, offset, max_error, status = ask()
    except OSError as error:
        raise SourceError(f"adjtimex: {error.strerror}") from error
    return ClockState(
        offset_seconds=offset * (1e-9 if status & _STA_NANO else 1e-6),
        max_error_seconds=max_error * 1e-6,
        synchronized=state != _TIME_ERROR and not status & _STA_UNSYNC,
    )


class ClockCollector(Collector):
    """The kernel's clock state."""

    def __init__(self, read: Callable[[], ClockState] = read_clock) -> None:
        self._read = read

    def collect(self) -> Samples:
        out = Samples()
        state = self._read()
        out.add(OFFSET, state.offset_seconds)
        out.add(MAX_ERROR, state.max_error_seconds)
        out.add(SYNCHRONIZED, int(state.synchronized))
        return out


SPEC = Declaration(
    name="clock",
    help="clock offset, error and synchronisation (adjtimex)",
    interval=10.0,
    options=NoOptions,
)
