"""The agent's side of the GPU reader: a child process in which a driver call may hang."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stagewatch.core.children.start import popen
from stagewatch.core.children.supervisor import Supervisor
from stagewatch.core.errors import NoData, SourceError, StagewatchError


class Released(StagewatchError):
    """The driver is released, so that a GPU can be reset."""


def child_command() -> list[str]:
    """The command of the reader process."""
    return [sys.executable, "-m", "stagewatch.gpu.nvml.driver", str(os.getpid())]


class GpuReader(Supervisor):
    """Asks the child for frames.

    `read` is called from one thread, which must live as long as the reader (the kernel kills the
    child together with the thread that started it); `close` from any other.
    """

    def __init__(
        self,
        *,
        timeout: float = 5.0,
        start_timeout: float = 30.0,
        backoff: tuple[float, float] = (5.0, 300.0),
        release_file: Path | None = None,
        command: Callable[[], Sequence[str]] = child_command,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            "the GPU reader",
            lambda: popen(command(), errors=True),
            answerer="the NVIDIA driver",
            timeout=timeout,
            start_timeout=start_timeout,
            backoff=backoff,
            clock=clock,
        )
        self._release_file = release_file

    def read(self, tiers: Sequence[str]) -> dict[str, Any]:
        """A frame of these tiers.

        Raises `Stuck` after the deadline and until a driver call succeeds again, `Released` while
        the driver is released, `NoData` without driver or GPU, `SourceError` otherwise.
        """
        if self._is_released():
            self.dismiss()
            raise Released("the GPUs are released")
        try:
            return self.ask({"tiers": list(tiers)}, _frame)
        except StagewatchError as error:
            if self._is_released():
                self.dismiss()
                raise Released("the GPUs are released") from error
            raise

    def _is_released(self) -> bool:
        return self._release_file is not None and self._release_file.exists()


def _frame(answer: dict[str, Any]) -> dict[str, Any]:
    """The frame; raises the child's error."""
    if "error" in answer:
        raise (NoData if answer["kind"] == "no_data" else SourceError)(answer["error"])
    return answer
