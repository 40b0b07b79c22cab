"""Shows the progress of long work on a terminal."""

from __future__ import annotations

import re
import sys
from typing import TextIO


class Progress:
    """A line on standard error that is drawn over and over, and gone at the end."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._queries = 0

    def step(self, expression: str) -> None:
        """Show the number of a query, and the first metric that it reads."""
        self._queries += 1
        metric = re.search(r"([\w:]+)\{", expression)
        self._show(f"query {self._queries}: {metric[1][:60] if metric else 'metrics'}")

    def close(self) -> None:
        """Clear the line."""
        self._show("")

    def _show(self, text: str) -> None:
        if self._stream.isatty():
            self._stream.write(f"\r\033[K{text}")
            self._stream.flush()
