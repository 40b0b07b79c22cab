"""How a job of the helper process tells of itself; standard library only."""

from __future__ import annotations

import json
import os
import time
from typing import Any


class Report:
    """What a job can tell while it runs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def phase(self, name: str) -> None:
        """A phase begins: the one in which the job hangs, if it never gets any further."""
        self.send({"phase": name, "since": time.monotonic()})

    def keep(self, leftover: Any) -> None:
        """Something for the next run to find, whatever becomes of this one."""
        self.send({"leftover": leftover})

    def send(self, message: dict[str, Any]) -> None:
        """One line, however often it takes."""
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
