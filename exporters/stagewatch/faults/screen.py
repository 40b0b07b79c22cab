"""What an injection shows: lines, and on a terminal colours and a countdown."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

_COLOURS = {"did": "31", "undone": "32", "would": "33", "then": "32", "note": "36", "failed": "31"}


class Screen:
    """Writes to a stream; one that nobody reads any more is no reason to leave a fault behind."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._colours = self._terminal and not os.environ.get("NO_COLOR")
        self._counting = False

    def head(self, text: str) -> None:
        """A line that stands out."""
        self._write(f"\033[1m{text}\033[0m" if self._colours else text)

    def line(self, label: str, text: str) -> None:
        """A line with what it is about before it."""
        padded = f"{label:>7}"
        if self._colours:
            padded = f"\033[{_COLOURS.get(label, '0')}m{padded}\033[0m"
        self._write(f"{padded}  {text}")

    def countdown(self, seconds: float) -> None:
        """How long it will last, on a terminal only."""
        if self._terminal:
            self._counting = True
            self._put(f"\r\033[K{'':>7}  {seconds:.0f} s left (Ctrl-C ends it now)")

    def _write(self, text: str) -> None:
        if self._counting:
            self._put("\r\033[K")
            self._counting = False
        self._put(f"{text}\n")

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
