"""The kernel's view of its own clock: adjtimex(2), read only."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from stagewatch.core.errors import SourceError

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
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("padding", ctypes.c_int * 11),
    )


@dataclass(frozen=True, slots=True)
class ClockState:
    """The clock discipline's state; seconds, and a ratio for the frequency."""

    offset_seconds: float
    max_error_seconds: float
    frequency_offset_ratio: float
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
        frequency_offset_ratio=timex.freq / 65536 * 1e-6,  # parts per million, 16 fraction bits
        synchronized=state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
    )
