"""Looks through directories of checkpoints: the newest, the one before it, and leftovers.

Runs in a worker of the helper process, since a mount may not answer; standard library only.  A look
has limits of time and of entries.  Symbolic links are not followed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagewatch.checkpoint.inventory import TooMany, inventory
from stagewatch.checkpoint.names import TEMPORARY, step_of
from stagewatch.checkpoint.verify import TimeIsUp, verify
from stagewatch.core.children.worker import Report
from stagewatch.core.path_patterns import is_wild, matching

MAX_DEPTH = 6


class _Exhausted(Exception):
    """The look has reached its limit of time or entries."""


@dataclass(slots=True)
class _Group:
    """The entries of a directory that are one checkpoint."""

    name: str
    step: int | None
    paths: list[Path] = field(default_factory=list)
    modified: float = 0.0


def run(arguments: dict[str, Any], leftover: Any, report: Report) -> dict[str, Any]:
    """One look.

    Arguments: pattern (a path; a component may hold `{job}` or `*`), max_entries, seconds,
    max_jobs, max_age, verify (whether headers are read).  Result: `jobs`, by name, see
    `_Look.directory`; `complete`, whether nothing was left out.
    """
    report.phase("scan")
    known: dict[str, Any] = leftover or {}
    until = time.monotonic() + arguments["seconds"]
    look = _Look(arguments["max_entries"], until, verify=arguments.get("verify", False))
    jobs: dict[str, Any] = {}
    complete = True
    oldest = time.time() - arguments["max_age"]
    try:
        directories = look.expand(arguments["pattern"])
        kept = directories[: arguments["max_jobs"]]
        complete = len(directories) == len(kept)
        for job, directory in kept:
            look.allow(arguments["max_entries"] // len(kept))
            try:
                found = look.directory(directory, known.get(job) or {})
            except _Exhausted:  # one job's crowded directory must not hide those of others
                complete = False
                continue
            if found is not None and found["modified"] >= oldest:
                jobs[job] = found
    except (_Exhausted, OSError):
        complete = False
    report.keep(jobs if complete else known | jobs)
    return {"jobs": jobs, "complete": complete and not look.unreadable}


class _Look:
    def __init__(self, max_entries: int, until: float, *, verify: bool = False) -> None:
        self.unreadable = False
        self._looked_at = 0
        self._last_entry = max_entries
        self._until = until
        self._verify = verify

    def allow(self, entries: int) -> None:
        """Set the number of entries that may be looked at from here on."""
        self._last_entry = self._looked_at + entries

    def expand(self, pattern: str) -> list[tuple[str, Path]]:
        """The directories that match a pattern, with their job, the last changed first."""
        dated = []
        for names, path in matching(pattern, {"job": ".+"}, self._entries, files=False):
            job = names.get("job", names.get("*", "") if "{job}" not in pattern else "")
            try:
                dated.append((path.stat().st_mtime, job, path))
            except OSError:
                if not is_wild(pattern):
                    raise
        newest: dict[str, Path] = {}
        for _, job, path in sorted(dated, reverse=True):
            newest.setdefault(job, path)
        return list(newest.items())

    def directory(self, directory: Path, known: dict[str, Any]) -> dict[str, Any] | None:
        """The checkpoints of a directory; `None` without any.

        `known` is the result of the last look.  It shows whether the newest checkpoint grows, and
        the size of one that has been removed or overwritten since.
        """
        groups: dict[tuple[int, str], _Group] = {}
        temporary: list[tuple[Path, float]] = []
        for entry in self._entries(directory):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISLNK(status.st_mode):
                continue
            path = directory / entry.name
            if TEMPORARY.search(entry.name):
                temporary.append((path, status.st_mtime))
                continue
            kind, step = step_of(entry.name)
            if step is not None or stat.S_ISREG(status.st_mode):
                name = "" if step is None else str(step)
                group = groups.setdefault((kind, name), _Group(name, step))
                group.paths.append(path)
                group.modified = max(group.modified, status.st_mtime)
        if not groups:
            return None
        best = max(kind for kind, _ in groups)
        order = [group for (kind, _), group in groups.items() if kind == best]
        order.sort(key=lambda group: (group.modified, group.step or 0))
        newest = order[-1]
        size, files, modified, unfinished = self._measure(newest.paths)
        found = {
            "name": newest.name,
            "step": newest.step,
            "size": size,
            "files": files,
            "modified": max(modified, newest.modified),
            "temporary": len(temporary) + unfinished,
            "temporary_modified": min((when for _, when in temporary), default=None),
        }
        before = order[-2] if len(order) > 1 else None
        found |= self._compare(found, before, known)
        return found | self._verified(directory, newest, before, found, known)

    def _verified(
        self,
        directory: Path,
        newest: _Group,
        before: _Group | None,
        found: dict[str, Any],
        known: dict[str, Any],
    ) -> dict[str, Any]:
        """Whether a checkpoint that has stopped growing is whole; it is checked once.

        `lacking` counts the files that are wrong and `lacks` names the first; both are `None` if
        the check was not made or failed.
        """
        if not self._verify or found["growing"] != 0:
            return {"lacking": None, "lacks": None, "looked": False}
        nothing = {"lacking": None, "lacks": None, "looked": True}
        if known.get("looked"):
            return {key: known[key] for key in nothing}
        try:
            files = inventory(directory, newest.paths, follow=False)
            earlier = inventory(directory, before.paths, follow=False) if before else None
            report = verify(files, earlier, until=self._until)
        except (OSError, TooMany, TimeIsUp):
            return nothing
        first = report.faults[0] if report.faults else None
        lacks = "" if first is None else f"{first.name[-80:]}: {first.why}"
        return {"lacking": report.lacking, "lacks": lacks, "looked": True}

    def _compare(
        self, found: dict[str, Any], before: _Group | None, known: dict[str, Any]
    ) -> dict[str, Any]:
        """Compares the newest checkpoint with the one before it and with the last look."""
        same = known.get("name") == found["name"]
        changed = same and any(known[key] != found[key] for key in ("size", "files", "modified"))
        previous = {key: known.get(key) for key in ("previous_name", "previous_size")}
        if before is not None:
            if not same or previous["previous_name"] != before.name:
                previous = _previous(before.name, self._measure(before.paths)[0])
        elif known and not same:  # removed since
            previous = _previous(known["name"], known["size"])
        elif changed and found["step"] is None and known["growing"] == 0:  # overwritten
            previous = _previous("", known["size"])
        return previous | {"growing": int(changed) if same else None}

    def _measure(self, paths: list[Path]) -> tuple[int, int, float, int]:
        """Bytes, files, last change and temporary files of a checkpoint."""
        size = files = temporary = 0
        modified = 0.0
        waiting = [(path, 0) for path in paths]
        while waiting:
            path, depth = waiting.pop()
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                waiting += [(path / entry.name, depth + 1) for entry in self._entries(path)]
            elif stat.S_ISREG(status.st_mode):
                size += status.st_size
                files += 1
                modified = max(modified, status.st_mtime)
                temporary += bool(TEMPORARY.search(path.name))
        return size, files, modified, temporary

    def _entries(self, directory: Path) -> Iterator[os.DirEntry[str]]:
        """The entries of a directory, counted; none if it may not be read."""
        try:
            with os.scandir(directory) as found:
                for entry in found:
                    self._looked_at += 1
                    if self._looked_at > self._last_entry or time.monotonic() > self._until:
                        raise _Exhausted
                    yield entry
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.unreadable = True


def _previous(name: str, size: int) -> dict[str, Any]:
    return {"previous_name": name, "previous_size": size}
