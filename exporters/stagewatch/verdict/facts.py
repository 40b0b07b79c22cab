"""Gathers facts about each rank of this node, from its record and a few looks at its process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from stagewatch.host.procfs import Procfs
from stagewatch.ranks.directory import Census, RankDirectory
from stagewatch.ranks.model import Rank
from stagewatch.ranks.records import Life
from stagewatch.ranks.wait_class import Sample, Sampler, WaitClass, classify
from stagewatch.verdict.thresholds import budget_seconds


class RecordState(str, Enum):
    """Whether a rank keeps a stage record, and why it may not."""

    KEPT = "kept"
    NONE = "none"
    """Its program does not use stagewatch, or could not write to the directory."""
    NO_ROOM = "no_room"
    """None, and the directory has no room for one."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank at one moment.  What cannot be known, as without a record, is `None`."""

    job_id: str
    role: str
    rank: int
    pid: int
    world_size: int | None
    stage: str | None
    substage: str
    stage_open_seconds: float | None
    step: int | None
    progress_age_seconds: float | None
    budget_seconds: float | None
    """How long this stage may go without a mark of progress."""
    armed: bool
    """Whether gaps that this rank has shown have taught the budget."""
    collectives: dict[str, int]
    state: str
    wait_channel: str
    cpu_ratio: float | None
    wait_class: WaitClass
    first_failure: str
    first_failure_time: float | None
    first_failure_age_seconds: float | None
    record: RecordState = RecordState.KEPT

    @property
    def overdue(self) -> bool:
        """Whether the rank has gone longer without progress than its stage may."""
        age, budget = self.progress_age_seconds, self.budget_seconds
        return age is not None and budget is not None and age > budget


def observe(
    directory: RankDirectory,
    proc: Procfs,
    *,
    looks: int,
    pause: float,
    sleep: Callable[[float], None] = time.sleep,
) -> list[RankFacts]:
    """Look at every rank `looks` times, `pause` seconds apart."""
    sampler = Sampler(proc)
    windows: dict[int, list[Sample]] = {}
    census = Census()
    for look in range(looks):
        if look:
            sleep(pause)
        census = directory.look()
        for rank in census.ranks:
            alive = rank.life is Life.ALIVE
            sample = sampler.take(rank, time.monotonic()) if alive else None
            if sample is not None:
                windows.setdefault(rank.pid, []).append(sample)
    return [
        _facts(rank, windows.get(rank.pid, []), full=census.full)
        for rank in census.ranks
        if rank.life is not Life.CLOSED
    ]


def _facts(rank: Rank, window: list[Sample], *, full: bool) -> RankFacts:
    record = rank.record
    lane = record.training if record else None
    frame = record.open if record else None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    stage = frame.stage if frame else ("idle" if record else None)
    first = record.first_failure if record else None
    alive = rank.life is Life.ALIVE and bool(window)
    seconds = window[-1].time - window[0].time if len(window) > 1 else 0.0
    budget, armed = budget_seconds(record, stage) if record and stage else (None, False)
    ran = window[-1].run_seconds - window[0].run_seconds if seconds else 0.0
    return RankFacts(
        job_id=rank.job_id,
        role=rank.role,
        rank=rank.rank,
        pid=rank.pid,
        world_size=rank.world_size,
        stage=stage,
        substage=frame.substage if frame else "",
        stage_open_seconds=max(0.0, now - frame.started) if frame else None,
        step=lane.step if lane else None,
        progress_age_seconds=max(0.0, now - lane.progress) if lane and lane.progress else None,
        budget_seconds=budget,
        armed=armed,
        collectives=dict(record.collectives) if record else {},
        state=window[-1].state if alive else "-",
        wait_channel=window[-1].channel if alive else "",
        cpu_ratio=ran / seconds if alive and seconds else None,
        wait_class=WaitClass.GONE if rank.life is Life.GONE else classify(window),
        first_failure=f"{first.error} in {first.stage}" if first else "",
        first_failure_time=first.time if first else None,
        first_failure_age_seconds=max(0.0, time.time() - first.time) if first else None,
        record=RecordState.KEPT if record else RecordState.NO_ROOM if full else RecordState.NONE,
    )
