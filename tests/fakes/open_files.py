"""Reads files of `/proc` on the spot, where a test knows that none of them blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


class OpenFiles:
    """Stands for `GuardedFiles` over a made-up process filesystem."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(
        self, file: str, pids: Iterable[int], prefixes: Sequence[str] = ()
    ) -> Mapping[int, bytes]:
        """Everything, whatever the prefixes."""
        paths = ((pid, self._root / str(pid) / file) for pid in pids)
        return {pid: path.read_bytes() if path.exists() else b"" for pid, path in paths}

    def blocked(self, file: str) -> frozenset[int]:
        """None of them."""
        return frozenset()
