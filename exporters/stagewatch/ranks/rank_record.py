"""What a stage record says, and what is derived from it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum


class Life(Enum):
    """What is known of the process behind a record."""

    ALIVE = "alive"
    GONE = "gone"
    """It ended without closing its record."""
    CLOSED = "closed"
    """It closed its record itself: a clean exit."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An open stage."""

    stage: str
    substage: str
    step: int | None
    started: float
    """`CLOCK_BOOTTIME`, seconds."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What one thread recorded."""

    frames: tuple[Frame, ...]
    """Open stages, the most recently entered last."""
    progress: float
    """`CLOCK_BOOTTIME` of the last mark of progress, seconds; 0 where there was none."""
    marks: int
    step: int | None


@dataclass(frozen=True, slots=True)
class StageTotals:
    """Closed stages and gaps between progress marks; bucket counts are not cumulative."""

    durations: tuple[int, ...]
    duration_seconds: float
    gaps: tuple[int, ...]
    gap_seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that left a stage."""

    stage: str
    error: str
    message: str
    step: int | None
    time: float
    """Unix time, seconds."""


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank's record at one moment."""

    job_id: str
    role: str
    rank: int
    local_rank: int | None
    world_size: int | None
    framework: str
    host: str
    gpu: str
    pid: int
    """As the rank sees itself; once its directory was read as the agent does, 0 if it cannot."""
    boot_id: str
    pid_namespace: int
    start_ticks: int
    created: float
    """Unix time, seconds."""
    closed: bool
    dropped: int
    lanes: tuple[Lane, ...]
    totals: Mapping[str, StageTotals]
    collectives: Mapping[str, int]
    scalars: Mapping[str, float]
    failures: Mapping[tuple[str, str], int]
    first_failure: Failure | None
    last_failure: Failure | None
    life: Life = Life.ALIVE
    name: str = field(default="", compare=False)
    """File name, for messages."""
    uid: int = field(default=-1, compare=False)
    """User the file belongs to."""

    @property
    def training(self) -> Lane | None:
        """The lane that stands for the rank: the training thread's, or the busiest if that
        thread never recorded anything."""
        if not self.lanes or self.lanes[0].marks:
            return self.lanes[0] if self.lanes else None
        return max(self.lanes, key=lambda lane: lane.progress)

    @property
    def open(self) -> Frame | None:
        """The innermost open stage of the training thread, open since its outermost part was."""
        lane = self.training
        if lane is None or not lane.frames:
            return None
        innermost = lane.frames[-1]
        parts = itertools.takewhile(
            lambda frame: frame.stage == innermost.stage, reversed(lane.frames)
        )
        return replace(innermost, started=min(frame.started for frame in parts))
