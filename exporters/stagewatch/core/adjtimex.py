"""The state of the kernel's clock, by adjtimex(2), read only.

The call could also set the clock, so the agent's unit may not make it; the keeper of privileges
does.
"""

from __future__ import annotations

import ctypes
import os


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


def adjtimex() -> tuple[int, ...]:
    """The state, then the offset, the maximum error (us) and the status of the kernel's structure.

    Raises `OSError`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    state = libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return state, timex.offset, timex.maxerror, timex.status
