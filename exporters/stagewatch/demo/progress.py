"""Lines of what happens, for somebody who looks on."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

from stagewatch.core.errors import StagewatchError


class Progress:
    """Lines of what happens, with the seconds; on a terminal the last one counts up."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._text = ""
        self._live = sys.stdout.isatty()

    def step(self, text: str) -> None:
        """Begin a new step."""
        self._text = text
        self.say(text)

    def say(self, text: str) -> None:
        """A line of its own."""
        clear = "\r\033[K" if self._live else ""
        print(f"{clear}{self._seconds()}  {text}", flush=True)

    def wait_until(
        self, condition: Callable[[], bool], limit: float, problem: str, pause: float = 0.25
    ) -> None:
        """Wait, showing that time passes.  Raises `StagewatchError` after `limit` seconds."""
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                raise StagewatchError(f"{problem} within {limit:.0f} s")
            if self._live:
                print(f"\r\033[K{self._waiting()}", end="", flush=True)
            time.sleep(pause)
        if self._live:
            print("\r\033[K", end="", flush=True)

    def _waiting(self) -> str:
        """What fits on one line: of one that wraps, only the last part would be written over."""
        line = f"{self._seconds()}  ... {self._text}"
        room = shutil.get_terminal_size().columns - 1
        return line if len(line) <= room else f"{line[: room - 1]}…"

    def _seconds(self) -> str:
        return f"[{time.monotonic() - self._started:5.1f} s]"
