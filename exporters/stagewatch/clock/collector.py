"""Whether the node's clock can be trusted, by adjtimex(2), read only.

Ranks that leave a loop by the wall clock hang a job where their clocks differ.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

from stagewatch.core.collector import Collector, Declaration, NoOptions
from stagewatch.core.errors import SourceError
from stagewatch.core.exposition import Samples, gauge

OFFSET = gauge(
    "clock_offset_seconds",
    "Offset from the time source that the kernel is still correcting.",
)
MAX_ERROR = gauge("clock_max_error_seconds", "The most the clock may be off by its own estimate.")
SYNCHRONIZED = gauge("clock_synchronized", "1 if the clock is kept in step with a time source.")

_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 20),
    )


@dataclass(frozen=True, slots=True)
class ClockState:
    """The state of the clock discipline, in seconds."""

    offset_seconds: float
    max_error_seconds: float
    synchronized: bool


def read_clock() -> ClockState:
    """Ask the kernel.  Raises `SourceError` where it refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    state = libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        raise SourceError(f"adjtimex: {os.strerror(ctypes.get_errno())}")
    unit = 1e-9 if timex.status & _STA_NANO else 1e-6
    return ClockState(
        offset_seconds=timex.offset * unit,
        max_error_seconds=timex.maxerror * 1e-6,
        synchronized=state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
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
