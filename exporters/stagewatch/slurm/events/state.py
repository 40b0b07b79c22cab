"""What was counted of the cluster's events, kept over restarts in one small JSON file.

The file is written whole, so that a crash leaves the old or the new one.  A file that cannot be
read is put aside, and counting begins anew: counters that restart at 0 are what Prometheus expects,
wrong ones are not.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stagewatch.core.files import write_atomically
from stagewatch.slurm.events.jobs import JobLedger
from stagewatch.slurm.events.nodes import NodeLedger

log = logging.getLogger(__name__)

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024


class StateFile:
    """A JSON object in a file; `ok` tells failures, and the log has each of them once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ok = True
        self._said = ""

    def load(self) -> Mapping[str, Any] | None:
        """Return the saved object; `None` without a file that can be used."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise ValueError("it is too large")
            saved = json.loads(self.path.read_bytes())
            if not isinstance(saved, dict) or saved.get("version") != VERSION:
                raise ValueError("it is of another version")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._failed(f"cannot be read ({error.strerror}); counters begin at 0")
            return None
        except (ValueError, RecursionError) as error:
            self.reject(str(error))
            return None
        return saved

    def reject(self, why: str) -> None:
        """Put aside a file whose content cannot be used."""
        aside = self.path.with_name(self.path.name + ".corrupt")
        try:
            self.path.replace(aside)
        except OSError:
            aside = self.path
        self._failed(f"is not usable: {why}; kept as {aside.name}, counters begin at 0")

    def save(self, content: Mapping[str, Any]) -> None:
        """Replace the file."""
        data = json.dumps({"version": VERSION, **content}, separators=(",", ":")).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, data)
        except OSError as error:
            self._failed(
                f"cannot be written ({error.strerror}); counters will begin at 0 after a restart"
            )
        else:
            self.ok, self._said = True, ""

    def _failed(self, message: str) -> None:
        self.ok = False
        if message != self._said:
            log.warning("state file %s %s", self.path, message)
            self._said = message


SAVE_EVERY = 30.0
"""Seconds between two writings of the state file."""


class ClusterEvents:
    """The ledgers of the cluster, which the events collector alone feeds."""

    def __init__(self, state_file: Path | None, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._file = StateFile(state_file) if state_file else None
        self._last_saved = 0.0
        now = wall()
        self.jobs = JobLedger(now)
        self.nodes = NodeLedger(now)
        if self._file is not None:
            self._load(self._file)

    @property
    def kept(self) -> bool | None:
        """Whether the counters will outlive a restart; `None` where none was asked for."""
        return None if self._file is None else self._file.ok

    def window(self) -> float:
        """The number of seconds to ask accounting back for; from any thread."""
        return max(60.0, self._wall() - self.jobs.window_start)

    def save(self, *, now: bool = False) -> None:
        """Write the file, at most every 30 seconds unless told to."""
        moment = self._wall()
        if self._file is None or (not now and moment - self._last_saved < SAVE_EVERY):
            return
        self._last_saved = moment
        self._file.save({"jobs": self.jobs.dump(), "nodes": self.nodes.dump()})

    def _load(self, file: StateFile) -> None:
        saved = file.load()
        if saved is None:
            return
        try:
            jobs, nodes = JobLedger.load(saved["jobs"]), NodeLedger.load(saved["nodes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            file.reject(f"{type(error).__name__}: {error}")
        else:
            self.jobs, self.nodes = jobs, nodes
