"""What the driver's error codes mean for us."""

from __future__ import annotations

from typing import Any

from stagewatch.core.errors import SourceError


class Errors:
    """Sorts NVML's errors into the three kinds that call for different action."""

    def __init__(self, nvml: Any) -> None:
        self._fatal = (
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        )
        self._lost = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND)
        self._absent = (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvml.NVML_ERROR_DEPRECATED,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
        )

    def is_fatal(self, error: Any) -> bool:
        """The session is of no use any more; a new process may fare better."""
        return error.value in self._fatal

    def is_lost(self, error: Any) -> bool:
        """The GPU does not answer any more."""
        return error.value in self._lost

    def is_absent(self, error: Any) -> bool:
        """This driver or this GPU does not have what was asked for."""
        return error.value in self._absent

    def absent_code(self, code: int) -> bool:
        """The same for the return code of a single field."""
        return code in self._absent


class SessionBroken(SourceError):
    """The session with the driver is over."""

    def __init__(self, error: Any) -> None:
        mismatch = "the NVIDIA library and kernel module differ in version: reboot"
        is_mismatch = getattr(error, "value", None) == 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
        super().__init__(mismatch if is_mismatch else f"the NVIDIA driver failed: {error}")
