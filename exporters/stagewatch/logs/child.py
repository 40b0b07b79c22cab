"""Reads new lines of log files and counts certain kinds, with first and last times.

Runs in a worker of the helper process, since logs lie on mounts that may not answer; standard
library only.  Between runs it keeps the position in every file and the counts.

A run has limits of bytes and of the processor's time, which the files share.  If a file grew by
more bytes, the run reads the start and the end of the new part, and counts the middle as skipped;
if its lines take a pattern longer, it counts the rest as skipped.  Only the first part of a long
line is read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stagewatch.core.children.worker import Report
from stagewatch.core.path_patterns import matching, printable
from stagewatch.logs.file import LABELS, LogReader
from stagewatch.logs.patterns import KNOWN, user_pattern

MAX_ENTRIES = 20_000
"""The most directory entries that one run looks at."""

PLACEHOLDERS = {"job_id": r"[^/]+?", "role": r"[A-Za-z_]+?", "rank": r"\d+"}


def run(arguments: dict[str, Any], leftover: Any, report: Report) -> dict[str, Any]:
    """One look at all files of a pattern.

    Arguments: pattern (a path with `{job_id}`, `{role}`, `{rank}`, `*`), patterns (user-defined,
    `name=regex`; none for the known ones), max_files, max_bytes, max_seconds.  The result has
    `series` (one per kind of line), `files` (one per label set) and totals.
    """
    report.phase("read")
    reader = _Reader(arguments, leftover)
    return reader.run(report)


class _Reader:
    def __init__(self, arguments: dict[str, Any], leftover: Any) -> None:
        self._pattern: str = arguments["pattern"]
        self._reader = LogReader(
            tuple(map(user_pattern, arguments["patterns"])) or KNOWN,
            self._list,
        )
        self._max_files: int = arguments["max_files"]
        self._allowed: int = arguments["max_bytes"]
        self._seconds: float = arguments["max_seconds"]
        self._first_run = leftover is None
        self._state: dict[str, Any] = leftover or {"files": {}, "read": 0, "skipped": 0}
        self._entries = 0

    def run(self, report: Report) -> dict[str, Any]:
        """Read new lines of every file, the shortest backlog first."""
        found = self._find()
        files: dict[str, Any] = {}
        behind = []
        self._inodes = [file["inode"] for file in self._state["files"].values()]
        for path, (names, status) in found.items():
            known = self._state["files"].get(path)
            file = known or self._new(names, status)
            files[path] = file
            behind.append((max(0, status.st_size - file["offset"]), path, status))
        self._state["files"] = files
        for number, (_, path, status) in enumerate(sorted(behind, key=lambda item: item[0])):
            left, began = len(behind) - number, time.process_time()
            share, seconds = self._allowed // left, self._seconds / left
            self._allowed -= self._reader.read_on(Path(path), files[path], status, share, seconds)
            self._seconds -= time.process_time() - began
        self._state["read"] += self._reader.read
        self._state["skipped"] += self._reader.skipped
        report.keep(self._state)
        return {
            "series": list(_series(files)),
            "files": sorted({_file_labels(path, file["labels"]) for path, file in files.items()}),
            "read": self._state["read"],
            "skipped": self._state["skipped"],
        }

    def _find(self) -> dict[str, tuple[dict[str, str], os.stat_result]]:
        """The files of the pattern, the last written first, within the limit."""
        found = []
        for names, path in matching(self._pattern, PLACEHOLDERS, self._list, files=True):
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime, str(path), names, status))
        found.sort(key=lambda item: item[:2], reverse=True)
        return {path: (names, status) for _, path, names, status in found[: self._max_files]}

    def _list(self, directory: Path) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > MAX_ENTRIES:
                        return
                    yield entry
        except OSError:
            return

    def _new(self, names: dict[str, str], status: os.stat_result) -> dict[str, Any]:
        """A file not seen before.

        Lines from before the agent's start do not count.  A file that was renamed is read to its
        end under the old name.
        """
        inode = [status.st_dev, status.st_ino]
        return {
            "labels": names,
            "inode": inode,
            "offset": status.st_size if self._first_run or inode in self._inodes else 0,
            "in_long_line": False,
            "written": status.st_mtime,
            "counts": {},
        }


def _file_labels(path: str, names: dict[str, str]) -> tuple[str, ...]:
    """Job, role, rank; and the file's name if these are not unique."""
    own = tuple(names.get(name, "") for name in LABELS)
    return (*own, "" if names.get("rank") else printable(Path(path).name))


def _series(files: dict[str, Any]) -> Iterator[list[Any]]:
    """Pattern, labels, count, first and last time of every kind of line, over all files."""
    merged: dict[tuple[str, ...], tuple[int, float, float]] = {}
    for path, file in files.items():
        for key, (count, first, last) in file["counts"].items():
            pattern, *own = key.split("\0")
            names = dict(zip(LABELS, own, strict=True))
            labels = (pattern, *_file_labels(path, names))
            old = merged.get(labels, (0, first, last))
            merged[labels] = (old[0] + count, min(old[1], first), max(old[2], last))
    for labels, values in merged.items():
        yield [*labels, *values]
