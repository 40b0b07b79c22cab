"""Keeps the counts of the cluster's events over restarts, in one small JSON file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagewatch.core.state_file import StateFile
from stagewatch.slurm.events.jobs import JobLedger
from stagewatch.slurm.events.nodes import NodeLedger

VERSION = 1

SAVE_EVERY = 30.0
"""Seconds between two writings of the state file."""


class ClusterEvents:
    """The ledgers of the cluster; only the events collector updates them."""

    def __init__(self, state_file: Path | None, *, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._file = StateFile(state_file, make_directory=True) if state_file else None
        self._last_saved = 0.0
        now = wall()
        self.jobs = JobLedger(now)
        self.nodes = NodeLedger(now)
        kept = self._file.load(_ledgers) if self._file is not None else None
        if kept is not None:
            self.jobs, self.nodes = kept

    @property
    def kept(self) -> bool | None:
        """Whether the counters survive a restart; `None` without a state file."""
        return None if self._file is None else self._file.ok

    def window(self) -> float:
        """How many seconds back to ask accounting; thread-safe."""
        return max(60.0, self._wall() - self.jobs.window_start)

    def save(self, *, now: bool = False) -> None:
        """Write the file, at most every 30 seconds unless `now`."""
        moment = self._wall()
        if self._file is None or (not now and moment - self._last_saved < SAVE_EVERY):
            return
        self._last_saved = moment
        self._file.save({"version": VERSION, "jobs": self.jobs.dump(), "nodes": self.nodes.dump()})


def _ledgers(saved: Any) -> tuple[JobLedger, NodeLedger]:
    if saved["version"] != VERSION:
        raise ValueError("it is of another version")
    return JobLedger.load(saved["jobs"]), NodeLedger.load(saved["nodes"])
