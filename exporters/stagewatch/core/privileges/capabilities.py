"""Capabilities of this process; see capabilities(7).

The kernel keeps them for each thread, so all of this is done while there is one only.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

DAC_READ_SEARCH = 2
SYS_PTRACE = 19
SYSLOG = 34
NAMES = {
    SYS_PTRACE: "CAP_SYS_PTRACE",
    DAC_READ_SEARCH: "CAP_DAC_READ_SEARCH",
    SYSLOG: "CAP_SYSLOG",
}
"""The capabilities that the node agent uses."""

_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_libc = ctypes.CDLL(None, use_errno=True)


def held() -> frozenset[int]:
    """The numbers of the capabilities that this process may use."""
    return _of("CapPrm")


def limit(kept: Iterable[int] = ()) -> None:
    """Give up all other capabilities for good, in every set that this process may change.

    Raises `OSError` if the kernel refuses, or if some remain.
    """
    wanted = held() & frozenset(kept)
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        raise OSError(0, "other threads would keep their capabilities")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if not wanted:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(64):
        if number not in wanted and _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # only with CAP_SETPCAP
    mask = sum(1 << number for number in wanted)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("=Ii", _VERSION, 0)
    # Effective, permitted, inheritable; an ambient one goes with the inheritable.
    inherited = sum(1 << number for number in _of("CapInh") & wanted)
    data = struct.pack("=6I", low, low, inherited & 0xFFFFFFFF, high, high, inherited >> 32)
    if _libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    left = [name for name in ("CapEff", "CapPrm", "CapInh", "CapAmb") if _of(name) - wanted]
    if left:
        raise OSError(0, f"capabilities are left: {', '.join(left)}")


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _of(name: str) -> frozenset[int]:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            mask = int(line.split()[1], 16)
            return frozenset(number for number in range(64) if mask >> number & 1)
    return frozenset()
