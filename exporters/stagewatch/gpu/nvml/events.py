"""XIDs as the driver announces them through NVML events.

Polled from the fast tier instead of waited for in a thread of its own: the library keeps a queue,
and one thread is all that profiling allows.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

WAIT_MILLISECONDS = 1
"""How long an empty queue may take; zero is left to no driver's interpretation."""

MOST = 256
"""Most events taken in one go; a GPU that floods the queue must not stop the readings."""


class Events:
    """The event queue of a session."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None

    @property
    def closed(self) -> bool:
        """Whether nothing is announced, after an error or for lack of support."""
        return self._set is None

    def open(self, handles: list[Any]) -> None:
        """Ask for the XIDs of these GPUs, in a new queue."""
        nvml = self._nvml
        self._set = None
        try:
            queue = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return
        wanted = nvml.nvmlEventTypeXidCriticalError
        for handle in handles:
            try:
                if nvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
                    nvml.nvmlDeviceRegisterEvents(handle, wanted, queue)
                    self._set = queue
            except nvml.NVMLError:
                continue

    def take(self) -> list[tuple[int, int]]:
        """The XIDs since the last call, as pairs of a handle's address and the number.

        Any error but an empty queue closes it until it is opened anew: on a lost GPU the driver
        answers at once every time, and would be asked in a loop.
        """
        nvml = self._nvml
        found: list[tuple[int, int]] = []
        while self._set is not None and len(found) < MOST:
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, WAIT_MILLISECONDS)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self._close()
                break
            if event.eventType & nvml.nvmlEventTypeXidCriticalError:
                found.append((address(event.device), int(event.eventData)))
        return found

    def _close(self) -> None:
        nvml, queue = self._nvml, self._set
        self._set = None
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlEventSetFree(queue)


def address(handle: Any) -> int:
    """What a device handle points to; equal for every handle of the same GPU."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
