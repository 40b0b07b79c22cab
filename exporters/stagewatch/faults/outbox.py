"""What is still to be told to Grafana, on disk until Grafana has taken it.

One small file per marker in a directory beside the markers, so that nothing is lost when Grafana
is down, the command is killed, or the machine reboots.  Whoever runs the next `stagewatch fault`
command with Grafana's address sends what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stagewatch.core.errors import SourceError
from stagewatch.faults.grafana import Grafana, Refused
from stagewatch.faults.markers import Marker

PAUSES = (0.5, 1.0, 2.0)
"""Seconds before each further try of one command."""
MAX_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A marker and how much of it Grafana knows."""

    marker: Marker
    annotation: int | None = None
    """The id that Grafana gave; none: not told yet, or the answer was lost."""
    tried: bool = False
    """Whether it was sent before, so that Grafana may know it although no answer came."""


class Outbox:
    """The entries of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, entry: Entry) -> None:
        """Write or replace the entry of a marker; a reader sees the old or the new one."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self._directory, prefix=".", suffix=".draft")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(asdict(entry), file)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(self._path(entry.marker.id))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(draft).unlink()
            raise

    def get(self, id: str) -> Entry | None:
        """The entry of a marker."""
        return self._read(self._path(id))

    def entries(self) -> Iterator[Entry]:
        """All entries, the oldest fault first; files that are none are passed over."""
        found = [self._read(path) for path in self._directory.glob("*.json")]
        yield from sorted((e for e in found if e), key=lambda entry: entry.marker.start)

    def remove(self, id: str) -> None:
        """Forget a marker that Grafana knows to its end."""
        self._path(id).unlink(missing_ok=True)

    def _path(self, id: str) -> Path:
        return self._directory / f"{id}.json"

    def _read(self, path: Path) -> Entry | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                content = json.loads(file.read(MAX_BYTES))
            return Entry(**{**content, "marker": Marker(**content["marker"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None


def deliver(
    outbox: Outbox, grafana: Grafana, *, sleep: Callable[[float], None] = time.sleep
) -> list[str]:
    """Tell Grafana all that it does not know yet; returns what could not be told, in words."""
    problems = []
    for entry in outbox.entries():
        problem = _deliver(outbox, grafana, entry.marker.id, sleep)
        if problem:
            problems.append(f"{entry.marker.id}: {problem}")
    return problems


def _deliver(
    outbox: Outbox, grafana: Grafana, id: str, sleep: Callable[[float], None]
) -> str | None:
    """Try some times; `None` once Grafana knows all there is to know now."""
    problem = None
    for pause in (*PAUSES, None):
        entry = outbox.get(id)
        if entry is None:
            return None
        try:
            _once(outbox, grafana, entry)
            return None
        except Refused as error:
            return str(error)
        except SourceError as error:
            problem = str(error)
        if pause is not None:
            sleep(pause)
    return problem


def _once(outbox: Outbox, grafana: Grafana, entry: Entry) -> None:
    """One try; the outbox holds at every moment what a later try has to know."""
    if entry.annotation is None:
        found = grafana.find(entry.marker) if entry.tried else None
        if found is None:
            outbox.put(entry := replace(entry, tried=True))
            found = grafana.open(entry.marker)
        outbox.put(entry := replace(entry, annotation=found))
    if entry.marker.end is None or entry.annotation is None:
        return
    try:
        grafana.close(entry.annotation, entry.marker.end)
    except Refused as error:
        if error.status != 404:  # somebody has deleted it, and wants none
            raise
    outbox.remove(entry.marker.id)
