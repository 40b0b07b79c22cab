"""The file that tells a node's prolog whether it is a lemon: JSON, small, replaced whole.

It may be on a mount that hangs, or in a place where others write: a separate process reads it
within a deadline, and all of its content is checked."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.core.files import write_atomically
from stagewatch.core.state_file import BROKEN, moment, parse, text

MAX_BYTES = 1 << 20
FRESH_SECONDS = 7 * 86400.0
"""A file older than this accuses nobody, and is a warning itself."""


def write(file: Path, reasons: Mapping[str, str], now: float) -> None:
    """Write the reasons of lemons by node.  Raises `OSError`."""
    content = {"written": now, "nodes": dict(sorted(reasons.items()))}
    write_atomically(file, json.dumps(content, indent=1).encode(), mode=0o644)


class Reader:
    """Reads a file in another process, which is left behind if it hangs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._process = subprocess.Popen(
            ["head", f"--bytes={MAX_BYTES + 1}", "--", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def reason(self, node: str, limit: float) -> str:
        """Why the node is a lemon, empty if it is none; waits until `limit` (monotonic seconds).

        Raises `SourceError` if the file cannot be read or used, or is too old.
        """
        try:
            data, _ = self._process.communicate(timeout=max(0.05, limit - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"{self._file} does not answer") from error
        if self._process.returncode:
            raise SourceError(f"{self._file} cannot be read")
        try:
            if len(data) > MAX_BYTES:
                raise ValueError("it is too large")
            content = parse(data)
            written = moment(content["written"])
            reasons = {text(name): text(why) for name, why in content["nodes"].items()}
        except BROKEN as error:
            raise SourceError(f"{self._file} is not a file of `stagewatch lemons`") from error
        if time.time() - written > FRESH_SECONDS:
            raise SourceError(f"{self._file} is older than a week")
        return reasons.get(node, "")

    def close(self) -> None:
        """Kill a process that still reads; one that the kernel holds is left behind."""
        self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
