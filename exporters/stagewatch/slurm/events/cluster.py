"""What one cluster's ledgers know, and their file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stagewatch.slurm.events.jobs import JobLedger
from stagewatch.slurm.events.nodes import NodeLedger
from stagewatch.slurm.events.state_file import StateFile

SAVE_EVERY = 30.0
"""Seconds between two writings of the state file."""


class ClusterEvents:
    """The ledgers of one cluster; fed by the events collector alone."""

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
        """For how many seconds back accounting is to be asked; from any thread."""
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
