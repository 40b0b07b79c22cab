"""Checks of the driver's answers: return codes, and numbers that mean "not available".

NVML marks "not available" with all bits set, tools above it with values just under 2^31 and 2^63 or
with 2^47 as a float; a GPU that is falling off the bus answers 0xFFFFFFFF to everything. In base
units all of these are far outside the possible range of a quantity, given by the bounds below.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import Any

from stagewatch.core.errors import SourceError

member = ctypes.Structure.__getattribute__
"""A number in an answer.  pynvml's own access looks for text to decode, and takes far longer."""
set_member = ctypes.Structure.__setattr__
"""Sets it; pynvml's own access looks for text to encode."""


class Codes:
    """NVML's return codes that need special action; all others are failures of one call."""

    def __init__(self, nvml: Any) -> None:
        self.fatal = {
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        }
        """The session is unusable; a new process may work."""
        self.lost = {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND}
        """The GPU no longer answers."""
        self.absent = {
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvml.NVML_ERROR_DEPRECATED,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
        }
        """This driver or this GPU does not support the call."""


class SessionBroken(SourceError):
    """The session with the driver is over."""

    def __init__(self, error: Any) -> None:
        mismatch = "the NVIDIA library and kernel module differ in version: reboot"
        is_mismatch = getattr(error, "value", None) == 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
        super().__init__(mismatch if is_mismatch else f"the NVIDIA driver failed: {error}")


# By the end of the metric's name; the first match counts.  Bounds are generous: a reading is only
# dropped when no hardware can have produced it.
_BOUNDS = (
    ("_celsius", -60.0, 250.0),
    ("_watts", 0.0, 50_000.0),
    ("_ratio", 0.0, 1.05),
    ("_hertz", 0.0, 1e11),
    ("_joules_total", 0.0, 1e15),
    ("_seconds_total", 0.0, 1e10),
    ("_bytes_per_second", 0.0, 1e14),
    ("_bytes_total", 0.0, 2.0**62),
    ("_cycles_total", 0.0, 2.0**62),
    ("_bytes", 0.0, 2.0**50),
    ("_generation", 1.0, 31.0),
    ("_generation_max", 1.0, 31.0),
    ("_width", 1.0, 64.0),
    ("_width_max", 1.0, 64.0),
    ("_mode", 0.0, 31.0),
    ("_state", 0.0, 31.0),
    ("_total", 0.0, 2.0**62),
)
_OTHER = (0.0, 2.0**31 - 17)
_BLANK_32 = frozenset((0xFFFFFFFF, *range(0x7FFFFFF0, 0x80000000)))
_BLANK_64 = 2**63 - 16
_BLANK_FLOAT = 2.0**47


def plausible(key: str, value: float) -> bool:
    """Whether a value, in base units, is possible for a reading."""
    low, high = _bounds(key)
    return math.isfinite(value) and low <= value <= high


@lru_cache(maxsize=4096)
def _bounds(key: str) -> tuple[float, float]:
    family = key.partition("/")[0]
    return next((bounds[1:] for bounds in _BOUNDS if family.endswith(bounds[0])), _OTHER)


def blank(raw: float, bits: int | None) -> bool:
    """Whether a field's raw value is a sentinel of its type (`bits` wide; None for a float)."""
    if bits is None:
        return not math.isfinite(raw) or _BLANK_FLOAT <= raw <= _BLANK_FLOAT + 16
    if raw == -1:
        return True
    return raw in _BLANK_32 if bits <= 32 else raw >= _BLANK_64
