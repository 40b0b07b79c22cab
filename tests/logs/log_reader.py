"""A reader of logs for tests, and what it has found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stagewatch.logs.child import run

MIB = 1 << 20
OOM = "CUDA out of memory\n"


class Reader:
    """Reads again and again, as the helper does."""

    def __init__(self, pattern: object, **limits: Any) -> None:
        defaults = {"patterns": ["oom=out of memory"], "max_files": 10, "max_seconds": 0.5}
        self._arguments = {"pattern": str(pattern), "max_bytes": 4 * MIB} | defaults | limits
        self._kept: Any = None

    def read(self) -> dict[str, Any]:
        return run(self._arguments, self._kept, self)  # type: ignore[arg-type]

    def phase(self, name: str) -> None:
        pass

    def keep(self, leftover: Any) -> None:
        self._kept = leftover


def counts(result: dict[str, Any]) -> dict[tuple[str, ...], int]:
    return {tuple(labels): count for *labels, count, _, _ in result["series"]}


def total(result: dict[str, Any]) -> int:
    return sum(counts(result).values())


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
